/* outbox_webhook_messages.cpp: the library outbox_webhook_messages, for sessions that check events. */
#include "delivery/engine/kind_library.h"
#include "webhook_kind.h"

OUTBOX_MESSAGES_KIND(outbox::WebhookKind)
