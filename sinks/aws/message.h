/* message.h: the message of an event, and the code that makes it. */
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aws_options.h"
#include "delivery/formats/record_maker.h"

namespace outbox::aws_sink {

/* Parsers of options. */
Template parse_detail_type(const std::string &name, const std::string &value);
Template parse_subject(const std::string &name, const std::string &value);
Template parse_source(const std::string &name, const std::string &value);

/* The members of a JSON object ("\"MessageBody\":\"...\""), or the parameters of a form ("Message=..."). */
using Fields = std::vector<std::string>;

/* An event as an entry of a batch. */
struct Entry {
  Fields fields;
  size_t size = 0; /* as AWS counts it for its limits */
};

/* The form of the message group: what SQS and SNS accept of a key is used as it is, any other key by its hash. */
std::string group_of(std::string_view key);

class MessageMaker : public RecordMaker {
public:
  /* The options must outlive it. */
  explicit MessageMaker(const AwsOptions &options);

  /* Throws BadInput if the event cannot be sent with these options. */
  Entry make(const ob_event &event) const;
  /* The check at enqueue time. Returns the least size of the message. */
  size_t check(const ob_event &event) const;

private:
  struct Attribute {
    std::string_view name, value;
    bool binary;
  };

  void make(const ob_event &event, bool with_payload, Entry &entry) const;
  void make_message(const ob_event &event, const Record &record, Entry &entry) const;
  void make_bus_event(const ob_event &event, const Record &record, bool with_payload, Entry &entry) const;
  std::vector<Attribute> attributes(const Record &record) const;
  void add_attributes(const std::vector<Attribute> &attributes, Entry &entry) const;
  void add(const char *name, std::string_view value, Entry &entry) const;

  const AwsOptions &options_;
  const Service service_;
  const Template source_; /* of EventBridge */
};

}  // namespace outbox::aws_sink
