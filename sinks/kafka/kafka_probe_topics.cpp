/*
 * kafka_probe_topics.cpp: a topic template with variables names no single topic, so the probe lists the cluster's
 * topics that match the template with `*` for each variable, and reads the permissions on at most 100 of them.
 */
#include "kafka_probe_topics.h"

#include <fnmatch.h>

#include <algorithm>
#include <memory>
#include <span>

#include "delivery/base/text.h"
#include "kafka_library.h"

namespace outbox {

using std::chrono::milliseconds;

/* Steps about single topics, and topics whose permissions are read. */
static constexpr size_t max_rows = 4, max_asked = 100;

/* A metadata request that gets no response is repeated after this time. */
static constexpr milliseconds ask_again{500};

struct Destroy {
  void operator()(rd_kafka_topic_t *topic) const { rd_kafka_topic_destroy(topic); }
  void operator()(rd_kafka_queue_t *queue) const { rd_kafka_queue_destroy(queue); }
  void operator()(rd_kafka_event_t *event) const { rd_kafka_event_destroy(event); }
  void operator()(rd_kafka_ConfigResource_t *resource) const { rd_kafka_ConfigResource_destroy(resource); }
  void operator()(rd_kafka_AdminOptions_t *options) const { rd_kafka_AdminOptions_destroy(options); }
  void operator()(const rd_kafka_metadata_t *metadata) const { rd_kafka_metadata_destroy(metadata); }
};
template <class Thing> using Owned = std::unique_ptr<Thing, Destroy>;

rd_kafka_resp_err_t KafkaProbeTopics::read() {
  Owned<rd_kafka_topic_t> one(is_one() ? rd_kafka_topic_new(client_.handle(), glob_.c_str(), nullptr) : nullptr);
  rd_kafka_resp_err_t error = RD_KAFKA_RESP_ERR__TIMED_OUT;
  while (!probe_.over()) {
    const rd_kafka_metadata_t *metadata = nullptr;
    error = rd_kafka_metadata(client_.handle(), one ? 0 : 1, one.get(), &metadata,
                              static_cast<int>(std::min(ask_again, probe_.left()).count()));
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
      Owned<const rd_kafka_metadata_t> owner(metadata);
      take(metadata);
      take_missing();
      break;
    }
    client_.poll(Probe::slice);
  }
  return error;
}

void KafkaProbeTopics::take(const rd_kafka_metadata_t *metadata) {
  answering_ = metadata->orig_broker_id;
  for (const rd_kafka_metadata_broker_t &broker : std::span(metadata->brokers, metadata->broker_cnt))
    brokers_.push_back({broker.id, std::string(broker.host) + ":" + std::to_string(broker.port)});
  for (const rd_kafka_metadata_topic_t &topic : std::span(metadata->topics, metadata->topic_cnt)) {
    if (fnmatch(glob_.c_str(), topic.topic, 0) != 0)
      continue;
    auto leaderless =
        std::count_if(topic.partitions, topic.partitions + topic.partition_cnt,
                      [](const rd_kafka_metadata_partition_t &partition) { return partition.leader < 0; });
    topics_.push_back({topic.topic, topic.err, topic.partition_cnt, static_cast<int>(leaderless)});
  }
}

/* Topics of waiting events that the cluster lacks, or does not show to this user. */
void KafkaProbeTopics::take_missing() {
  for (std::string_view name : split(probe_.topics(), ','))
    if (!name.empty() &&
        std::none_of(topics_.begin(), topics_.end(), [&](const Topic &topic) { return topic.name == name; }))
      topics_.push_back({std::string(name), RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, 0, 0});
}

std::string KafkaProbeTopics::who() const {
  return client_.user().empty() ? "the sink" : "user \"" + client_.user() + "\"";
}

static std::string topic_named(const std::string &topic) {
  return "topic \"" + topic + "\"";
}

/* Users paste this command into a shell, so a name with unusual characters is left out. */
static std::string rights_hint(const std::string &topic) {
  bool plain = std::all_of(topic.begin(), topic.end(),
                           [](unsigned char c) { return isalnum(c) || c == '.' || c == '_' || c == '-'; });
  return "Allow it on the cluster: kafka-acls --add --allow-principal User:… --operation Write --operation Describe "
         "--topic " +
         (plain ? topic : "…");
}

void KafkaProbeTopics::check() {
  std::vector<std::string> good, to_be_created;
  size_t rows = 0;
  if (may_create_ && std::any_of(topics_.begin(), topics_.end(), [](const Topic &each) { return each.is_missing(); }))
    broker_creates_ = ask_broker();
  for (const Topic &topic : topics_) {
    if (topic.error == RD_KAFKA_RESP_ERR_NO_ERROR && topic.leaderless == 0)
      good.push_back(topic.name);
    else if (topic.is_missing() && broker_creates_ == true)
      to_be_created.push_back(topic.name);
    else if (++rows <= max_rows)
      explain(topic);
  }
  if (!to_be_created.empty())
    probe_.passed("topic",
                  topic_named(to_be_created[0]) + (to_be_created.size() == 1
                                                       ? " does not exist; the broker creates it with the first event"
                                                       : " and " + std::to_string(to_be_created.size() - 1) +
                                                             " more do not exist; the broker creates them with their "
                                                             "first events"),
                  "Create it yourself if its number of partitions matters.");
  if (rows > max_rows)
    probe_.failed("topics",
                  std::to_string(rows) + " of " + std::to_string(topics_.size()) + " topics have a problem");
  if (topics_.empty())
    probe_.passed("topics", "none of the cluster's topics fits \"" + glob_ + "\" yet, or " + who() + " sees none",
                  "Create the topics, or let the brokers do so with the first event (auto.create.topics.enable).");
  if (!good.empty())
    check_rights(good);
}

void KafkaProbeTopics::explain(const Topic &topic) {
  if (topic.is_missing())
    explain_missing(topic.name);
  else if (topic.error == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED)
    probe_.failed("topic", who() + " is not allowed to write to " + topic_named(topic.name) + ", nor even to see it",
                  rights_hint(topic.name));
  else if (topic.error != RD_KAFKA_RESP_ERR_NO_ERROR)
    probe_.failed("topic", topic_named(topic.name) + ": " + rd_kafka_err2str(topic.error));
  else
    probe_.failed("topic",
                  topic_named(topic.name) + ": " + std::to_string(topic.leaderless) + " of " +
                      std::to_string(topic.partitions) +
                      (topic.partitions == 1 ? " partition has no leader" : " partitions have no leader"),
                  "The brokers that hold them are down.");
}

void KafkaProbeTopics::explain_missing(const std::string &topic) {
  if (!may_create_)
    probe_.failed("topic",
                  topic_named(topic) + " does not exist, and option allow_auto_create_topics keeps the sink from "
                                       "having it created",
                  "Create the topic, or set allow_auto_create_topics to true.");
  else if (!broker_creates_)
    probe_.failed("topic",
                  topic_named(topic) + " does not exist, and the broker does not report whether it creates topics",
                  "Create the topic.");
  else
    probe_.failed("topic", topic_named(topic) + " does not exist and the broker does not create topics",
                  "Create the topic, or set auto.create.topics.enable on the brokers.");
}

rd_kafka_event_t *KafkaProbeTopics::wait_for(rd_kafka_queue_t *queue) {
  while (!probe_.over())
    if (rd_kafka_event_t *event = rd_kafka_queue_poll(queue, static_cast<int>(Probe::slice.count())))
      return event;
  return nullptr;
}

/* Returns nothing if the user may not describe the cluster's configuration. */
std::optional<bool> KafkaProbeTopics::ask_broker() {
  Owned<rd_kafka_ConfigResource_t> broker(
      rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_BROKER, std::to_string(answering_).c_str()));
  Owned<rd_kafka_queue_t> queue(rd_kafka_queue_new(client_.handle()));
  rd_kafka_ConfigResource_t *resources[] = {broker.get()};
  rd_kafka_DescribeConfigs(client_.handle(), resources, 1, nullptr, queue.get());
  Owned<rd_kafka_event_t> event(wait_for(queue.get()));
  const rd_kafka_DescribeConfigs_result_t *result =
      event ? rd_kafka_event_DescribeConfigs_result(event.get()) : nullptr;
  if (!result || rd_kafka_event_error(event.get()) != RD_KAFKA_RESP_ERR_NO_ERROR)
    return std::nullopt;
  size_t n_resources, n;
  const rd_kafka_ConfigResource_t **answers = rd_kafka_DescribeConfigs_result_resources(result, &n_resources);
  if (n_resources != 1)
    return std::nullopt;
  const rd_kafka_ConfigEntry_t **entries = rd_kafka_ConfigResource_configs(answers[0], &n);
  for (const rd_kafka_ConfigEntry_t *entry : std::span(entries, n))
    if (rd_kafka_ConfigEntry_name(entry) == std::string_view("auto.create.topics.enable"))
      if (const char *value = rd_kafka_ConfigEntry_value(entry))
        return value == std::string_view("true");
  return std::nullopt;
}

void KafkaProbeTopics::report_good(const std::vector<std::string> &names, const std::string &rights) {
  if (is_one()) {
    probe_.passed("topic", topic_named(names[0]) + " has " + std::to_string(topics_[0].partitions) + " partition" +
                               (topics_[0].partitions == 1 ? "" : "s") + rights);
    return;
  }
  std::string list;
  for (size_t i = 0; i < std::min(max_rows, names.size()); i++)
    list += (i == 0 ? ": " : ", ") + names[i];
  probe_.passed("topics", std::to_string(names.size()) + " fit \"" + glob_ + "\"" + list +
                              (names.size() > max_rows ? ", …" : "") + rights);
}

void KafkaProbeTopics::check_rights(const std::vector<std::string> &names) {
#if RD_KAFKA_VERSION >= 0x020300ff
  if (rd_kafka_version() >= 0x020300ff) {
    read_rights(names);
    return;
  }
#endif
  report_good(names, "; whether writing is allowed shows with the first event: asking takes an outbox that was built "
                     "with librdkafka 2.3 or later");
}

#if RD_KAFKA_VERSION >= 0x020300ff
void KafkaProbeTopics::read_rights(const std::vector<std::string> &names) {
  struct Destroy {
    void operator()(rd_kafka_TopicCollection_t *topics) const { rd_kafka_TopicCollection_destroy(topics); }
  };
  std::vector<const char *> asked;
  for (const std::string &name : names)
    if (asked.size() < max_asked)
      asked.push_back(name.c_str());
  std::unique_ptr<rd_kafka_TopicCollection_t, Destroy> topics(
      rd_kafka_TopicCollection_of_topic_names(asked.data(), asked.size()));
  Owned<rd_kafka_AdminOptions_t> options(
      rd_kafka_AdminOptions_new(client_.handle(), RD_KAFKA_ADMIN_OP_DESCRIBETOPICS));
  if (rd_kafka_error_t *error = rd_kafka_AdminOptions_set_include_authorized_operations(options.get(), 1))
    rd_kafka_error_destroy(error);
  Owned<rd_kafka_queue_t> queue(rd_kafka_queue_new(client_.handle()));
  rd_kafka_DescribeTopics(client_.handle(), topics.get(), options.get(), queue.get());
  Owned<rd_kafka_event_t> event(wait_for(queue.get()));
  const rd_kafka_DescribeTopics_result_t *result =
      event ? rd_kafka_event_DescribeTopics_result(event.get()) : nullptr;
  if (!result || rd_kafka_event_error(event.get()) != RD_KAFKA_RESP_ERR_NO_ERROR) {
    report_good(names, "; the broker did not report whether writing is allowed");
    return;
  }
  size_t n, n_rights, refused = 0;
  const rd_kafka_TopicDescription_t **answers = rd_kafka_DescribeTopics_result_topics(result, &n);
  for (const rd_kafka_TopicDescription_t *answer : std::span(answers, n)) {
    const rd_kafka_AclOperation_t *rights = rd_kafka_TopicDescription_authorized_operations(answer, &n_rights);
    bool told = rights != nullptr; /* old brokers do not report permissions */
    bool may = told && std::find(rights, rights + n_rights, RD_KAFKA_ACL_OPERATION_WRITE) != rights + n_rights;
    if (!told || may || ++refused > max_rows)
      continue;
    std::string name = rd_kafka_TopicDescription_name(answer);
    probe_.failed("topic", who() + " is not allowed to write to " + topic_named(name), rights_hint(name));
  }
  if (refused > max_rows)
    probe_.failed("topics", "writing is not allowed to " + std::to_string(refused) + " topics");
  if (refused == 0)
    report_good(names, ", and " + who() + " may write");
}
#endif

}  // namespace outbox
