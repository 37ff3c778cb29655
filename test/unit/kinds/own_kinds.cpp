/* own_kinds.cpp: the kinds of sink that come with outbox, in one program instead of a library each. */
#include "delivery/engine/kind_library.h"

#undef OUTBOX_SINK_KIND
#define OUTBOX_SINK_KIND(Class) [[maybe_unused]] static const outbox::SinkKind &OWN_KIND = *new Class;

#define OWN_KIND kafka_kind
#include "sinks/kafka/outbox_kafka.cpp"
#undef OWN_KIND
#define OWN_KIND webhook_kind
#include "sinks/webhook/outbox_webhook.cpp"
