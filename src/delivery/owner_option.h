/*
 * owner_option.h: what the server process says of a sink's owner. It adds this name to the options of a server whose
 * owner is a superuser, when it opens the sink or probes it: such an owner may connect to any network. No kind has an
 * option of this name, so a user's is refused like any unknown one.
 */
#pragma once

#define OB_OWNER_IS_SUPERUSER "(owner is superuser)"
