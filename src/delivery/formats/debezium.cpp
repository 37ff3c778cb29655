#include "debezium.h"

#include "../uuid.h"

namespace outbox {

void debezium_record(const ob_event &event, Record &record) {
  uuid_text(event.id, record.id_text);
  record.key = event.key;
  record.value = event.payload;
  record.headers.clear();
  record.headers.push_back({{"id", 2}, {record.id_text, sizeof record.id_text}});
  record.headers.insert(record.headers.end(), event.headers, event.headers + event.n_headers);
}

}  // namespace outbox
