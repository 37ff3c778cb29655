/*
 * entry.cpp: one function makes the entry for submitting, for the check at enqueue time (which has no payload, only
 * its length) and for previews. An entry of Redis has no null: what has no value has no field.
 */
#include "entry.h"

#include "delivery/base/time_text.h"
#include "delivery/base/uuid.h"
#include "delivery/options/headers.h"

namespace outbox::redis {

static constexpr std::string_view header_prefix = "header.";

EntryMaker::EntryMaker(const RedisOptions &options)
    : RecordMaker(options, options.sends_empty_payload()), options_(options),
      maxlen_(options.maxlen ? std::to_string(*options.maxlen) : "") {}

/* The format's header `id` would repeat the field of this name. */
void EntryMaker::add_headers(Entry &entry) const {
  for (const ob_header &header : entry.record.headers) {
    std::string_view name = view(header.name);
    if (!header.value.data || name == "content-type" ||
        (name == "id" && view(header.value) == entry.fields.front().value))
      continue;
    std::string &field = entry.record.text();
    entry.fields.push_back({(field = header_prefix) += name, view(header.value)});
  }
}

void EntryMaker::make(const ob_event &event, Entry &entry) const {
  Record &record = entry.record;
  record.begin();
  if (!options_.stream.render(event, entry.stream))
    throw_no_value(STREAM, options_.stream.missing(event));
  if (entry.stream.empty())
    throw BadInput(OB_BAD_VALUE, STREAM, "event has no stream", "Option \"stream\" of the sink gives an empty name.",
                   "Change that option, or what the event has for it.");
  format_->write(event, record);

  std::string_view content_type = media_type(event);
  for (const ob_header &header : record.headers)
    if (view(header.name) == "content-type" && header.value.data)
      content_type = view(header.value);
  uuid_text(event.id, record.id_text);
  entry.fields.clear();
  entry.fields.push_back({"id", {record.id_text, sizeof record.id_text}});
  entry.fields.push_back({"type", view(event.event_type)});
  if (event.key.data)
    entry.fields.push_back({"key", view(event.key)});
  entry.fields.push_back({"created_at", record.text() = std::to_string(floor_ms(event.created_at_us))});
  add_headers(entry);
  entry.payload_bytes = record.value.len;
  if (!record.value.data)
    return;
  entry.fields.push_back({"content_type", content_type});
  entry.fields.push_back({"payload", view(record.value)});
}

Command EntryMaker::command(const Entry &entry) const {
  std::vector<std::string_view> words{"XADD", entry.stream, "MAXLEN", "~", maxlen_};
  if (maxlen_.empty())
    words.resize(2);
  words.reserve(words.size() + 1 + 2 * entry.fields.size());
  words.push_back("*");
  for (const Entry::Field &field : entry.fields) {
    words.push_back(field.name);
    words.push_back(field.value);
  }
  return Command(words);
}

size_t EntryMaker::check(const ob_event &event) const {
  static thread_local Entry &made = *new Entry; /* never destroyed, so no destructor runs at exit */

  return least_size(event, [&](const ob_event &without) {
    make(without, made);
    return made.payload_bytes;
  });
}

Preview preview_of(const Entry &entry) {
  Preview parts;
  parts.push_back({"stream", {}, entry.stream, {}});
  for (const Entry::Field &field : entry.fields)
    parts.push_back({"field", std::string(field.name), std::string(field.value), {}});
  return parts;
}

}  // namespace outbox::redis
