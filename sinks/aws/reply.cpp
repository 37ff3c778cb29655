/* reply.cpp: unknown members are skipped, so that an answer may become longer. */
#include "reply.h"

#include <algorithm>

#include "delivery/base/json_reader.h"
#include "xml_reader.h"

namespace outbox::aws_sink {
namespace {

/* "com.amazonaws.sqs#QueueDoesNotExist" and "QueueDoesNotExist:http://..." are both QueueDoesNotExist. */
std::string bare_code(const std::string &code) {
  size_t begin = code.rfind('#', std::min(code.find(':'), code.size()));
  begin = begin == code.npos ? 0 : begin + 1;
  return code.substr(begin, code.find(':', begin) - begin);
}

bool is_one_of(const std::string &name, std::initializer_list<const char *> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void take_member(const std::string &name, const JsonValue &value, EntryReply &entry) {
  if (name == "Id")
    entry.id = value.text;
  else if (is_one_of(name, {"MessageId", "EventId"}))
    entry.name = name + " " + value.text;
  else if (is_one_of(name, {"Code", "ErrorCode"}))
    entry.code = bare_code(value.text);
  else if (is_one_of(name, {"Message", "ErrorMessage"}))
    entry.message = value.text;
  else if (name == "SenderFault")
    entry.sender_fault = value.text == "true";
}

Reply read_json_reply(const std::string &body) {
  Reply reply;
  auto on_value = [&reply](const JsonPath &path, const JsonValue &value) {
    if (path.empty())
      reply.valid = value.kind == JsonValue::Kind::Object;
    else if (path.size() == 1 && value.kind == JsonValue::Kind::Text &&
             is_one_of(path[0], {"__type", "code", "Code"}))
      reply.code = bare_code(value.text);
    else if (path.size() == 1 && value.kind == JsonValue::Kind::Text && is_one_of(path[0], {"message", "Message"}))
      reply.message = value.text;
    else if (path.size() == 2 && is_one_of(path[0], {"Successful", "Failed", "Entries"}))
      reply.entries.emplace_back().sent = path[0] == "Successful";
    else if (path.size() == 3 && is_one_of(path[0], {"Successful", "Failed", "Entries"}) && !reply.entries.empty())
      take_member(path[2], value, reply.entries.back());
    if (path.size() == 3 && path[0] == "Entries" && path[2] == "EventId" && !reply.entries.empty())
      reply.entries.back().sent = !value.text.empty();
  };
  reply.valid = !read_json(body, on_value) && reply.valid;
  for (EntryReply &entry : reply.entries)
    entry.sent = entry.sent && entry.code.empty();
  return reply;
}

Reply read_xml_reply(const std::string &body) {
  Reply reply;
  auto on_element = [&reply](const XmlPath &path, const std::string &text, bool ends) {
    if (path.size() == 1 && !ends)
      reply.valid = path[0].ends_with("Response");
    const bool member = path.size() >= 4 && path[3] == "member" && is_one_of(path[2], {"Successful", "Failed"});
    if (member && path.size() == 4 && !ends)
      reply.entries.emplace_back().sent = path[2] == "Successful";
    if (!ends)
      return;
    if (member && path.size() == 5 && !reply.entries.empty())
      take_member(path[4], {JsonValue::Kind::Text, text}, reply.entries.back());
    if (path.size() == 3 && path[1] == "Error" && path[2] == "Code")
      reply.code = text;
    if (path.size() == 3 && path[1] == "Error" && path[2] == "Message")
      reply.message = text;
  };
  reply.valid = read_xml(body, on_element) && reply.valid;
  return reply;
}

}  // namespace

Reply read_reply(Service service, const std::string &body) {
  return service == Service::Sns ? read_xml_reply(body) : read_json_reply(body);
}

}  // namespace outbox::aws_sink
