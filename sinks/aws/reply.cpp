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
  else if (is_one_of(name, {"MessageId", "EventId"}) && value.kind == JsonValue::Kind::Text && !value.text.empty())
    entry.name = name + " " + value.text;
  else if (is_one_of(name, {"Code", "ErrorCode"}))
    entry.code = bare_code(value.text);
  else if (is_one_of(name, {"Message", "ErrorMessage"}))
    entry.message = value.text;
  else if (name == "SenderFault")
    entry.sender_fault = value.text == "true";
}

/* AWS gives each message that it has stored an id of its own. */
void only_named_are_sent(Reply &reply) {
  for (EntryReply &entry : reply.entries)
    entry.sent = entry.sent && entry.code.empty() && !entry.name.empty();
}

Reply read_json_reply(const std::string &body) {
  Reply reply;
  bool is_whole = true;
  auto on_value = [&](const JsonPath &path, const JsonValue &value) {
    if (value.kind == JsonValue::Kind::Number && value.text.empty())
      is_whole = false; /* the reading ends at such a number */
    if (path.empty())
      reply.valid = value.kind == JsonValue::Kind::Object;
    else if (path.size() == 1 && value.kind == JsonValue::Kind::Text &&
             is_one_of(path[0], {"__type", "code", "Code"}))
      reply.code = bare_code(value.text);
    else if (path.size() == 1 && value.kind == JsonValue::Kind::Text && is_one_of(path[0], {"message", "Message"}))
      reply.message = value.text;
    else if (path.size() == 2 && is_one_of(path[0], {"Successful", "Failed", "Entries"}))
      reply.entries.emplace_back().sent = path[0] != "Failed";
    else if (path.size() == 3 && is_one_of(path[0], {"Successful", "Failed", "Entries"}) && !reply.entries.empty())
      take_member(path[2], value, reply.entries.back());
  };
  reply.valid = !read_json(body, on_value) && reply.valid && is_whole;
  only_named_are_sent(reply);
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
  only_named_are_sent(reply);
  return reply;
}

}  // namespace

Reply read_reply(Service service, const std::string &body) {
  return service == Service::Sns ? read_xml_reply(body) : read_json_reply(body);
}

}  // namespace outbox::aws_sink
