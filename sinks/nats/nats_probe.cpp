/* nats_probe.cpp: asks JetStream for the stream. Many users may publish, but not ask: that is no failure. */
#include "nats_probe.h"

#include "acknowledgement.h"
#include "connection.h"
#include "delivery/base/clean_text.h"
#include "delivery/formats/json_text.h"
#include "delivery/net/peer_probe.h"

namespace outbox::nats {
namespace {

class NatsProbe final : public PeerProbe<NatsConfig, Connection> {
public:
  using PeerProbe::PeerProbe;

private:
  bool ask() override {
    compare_limits();
    return ask_for_jetstream() && ask_for_stream();
  }

  void compare_limits() {
    const size_t most = connection_->max_payload();
    if (most < config_.options.max_message)
      probe_.passed("max_payload", "max_payload of the server is " + std::to_string(most) + " bytes",
                    "Set max_message to that, so that larger events are refused when they are enqueued.");
  }

  /* The answer to what has been written with this number, or the server's words that it is not allowed. */
  Operation answer(uint64_t number, const char *step) {
    const Deadline by = deadline(); /* other messages do not prolong it */
    for (;;) {
      Operation operation = connection_->wait_next(by, step);
      if (operation.kind == Operation::Kind::Error ||
          (operation.kind == Operation::Kind::Message && connection_->number_of(operation.subject) == number))
        return operation;
    }
  }

  Operation ask(const std::string &subject, const std::string &body, const char *step) {
    append_request(subject, connection_->inbox(++number_), body, connection_->out());
    return answer(number_, step);
  }

  bool ask_for_jetstream() {
    Operation operation = ask("$JS.API.INFO", "", "JetStream");
    if (operation.kind == Operation::Kind::Error) {
      probe_.passed("JetStream", "the user may not ask about it", "Use send => true to try a message.");
      may_ask_ = false;
      return true;
    }
    std::string error =
        operation.status() == "503" ? "nobody answers questions about JetStream" : error_of(operation.text);
    if (error.empty()) {
      probe_.passed("JetStream", "is enabled for the account");
      return true;
    }
    probe_.failed("JetStream", error, "Enable it in the server (nats-server -js) and for the account.");
    return false;
  }

  bool ask_for_stream() {
    if (!may_ask_)
      return true;
    const std::string filter = config_.maker.subject_filter(), &wanted = config_.maker.stream();
    std::string body = R"({"subject":)";
    append_json_string(filter, body);
    Operation operation = ask("$JS.API.STREAM.NAMES", body + "}", "stream");
    if (operation.kind == Operation::Kind::Error) {
      probe_.passed("stream", "the user may not ask for streams", "Use send => true to try a message.");
      return true;
    }
    if (std::string error = error_of(operation.text); !error.empty()) {
      probe_.failed("stream", "JetStream does not tell its streams: " + error);
      return false;
    }
    std::string list;
    bool is_there = wanted.empty();
    const std::vector<std::string> names = streams_of(operation.text);
    for (const std::string &name : names) {
      list += (list.empty() ? "" : ", ") + in_quotes(name);
      is_there = is_there || name == wanted;
    }
    if (list.empty() || !is_there)
      probe_.failed("stream",
                    list.empty() ? "no stream takes " + filter
                                 : "stream \"" + wanted + "\" does not take " + filter + ", but " + list + " does",
                    "Create the stream, or correct the options subject and stream. Events wait until it is there.");
    else
      probe_.passed("stream", list + (filter.ends_with('>') ? " takes subjects of " : " takes ") + filter);
    return is_there && !list.empty() && acknowledges(wanted.empty() ? names.front() : wanted);
  }

  /* A stream with no_ack stores messages, and no event would ever count as delivered. */
  bool acknowledges(const std::string &stream) {
    if (stream.find_first_of(" \t\r\n.*>") != stream.npos)
      return true; /* no server has such a stream */
    Operation operation = ask("$JS.API.STREAM.INFO." + stream, "", "stream");
    if (operation.kind == Operation::Kind::Error || !is_no_ack(operation.text))
      return true;
    probe_.failed("stream", "stream " + in_quotes(stream) + " acknowledges nothing (no_ack)",
                  "Set no_ack of the stream to false. Its events are sent, and never count as delivered.");
    return false;
  }

  uint64_t number_ = 0;
  bool may_ask_ = true;
};

}  // namespace

void probe_nats(const NatsConfig &config, Probe &probe) {
  NatsProbe(config, probe).run();
}

}  // namespace outbox::nats
