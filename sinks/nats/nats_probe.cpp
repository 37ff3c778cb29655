/*
 * nats_probe.cpp: connects as the sink does, host by host, asks JetStream for the stream, and on request publishes a
 * message that says it is a test. Many users may publish, but not ask: that is no failure.
 */
#include "nats_probe.h"

#include "acknowledgement.h"
#include "connection.h"
#include "delivery/base/clean_text.h"
#include "delivery/engine/test_event.h"
#include "delivery/formats/json_text.h"

namespace outbox::nats {
namespace {

class NatsProbe {
public:
  NatsProbe(const NatsConfig &config, Probe &probe) : config_(config), probe_(probe), deadline_(new_deadline()) {}

  void run() {
    const auto &hosts = config_.connecting.hosts;
    bool connected = false;
    for (size_t i = 0; i < hosts.size() && !connected && !probe_.over(); i++) {
      try {
        connect(hosts[i]);
        connected = true;
      } catch (const PeerError &error) {
        fail(error, hosts.size() == 1 ? "" : hosts[i].text() + ": ");
      }
    }
    if (!connected)
      return;
    try {
      deadline_ = new_deadline();
      if (ask_for_jetstream() && ask_for_stream() && probe_.sends())
        send();
    } catch (const PeerError &error) {
      fail(error, "");
    }
  }

private:
  Deadline new_deadline() const {
    return {Probe::Clock::now() + std::min(config_.connecting.connect_timeout, probe_.left()),
            [this] { return probe_.over(); }};
  }

  void fail(const PeerError &error, const std::string &host) {
    std::string hint = error.hint;
    if (!hint.empty())
      hint[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(hint[0])));
    probe_.failed(error.step, host + error.what(), hint.empty() ? hint : hint + ".");
  }

  void connect(const Host &host) {
    connection_ = std::make_unique<Connection>(config_.connecting);
    deadline_ = new_deadline();
    connection_->connect(host, deadline_);
    probe_.passed("connect", connection_->peer() + " is " + connection_->product());
    if (config_.connecting.tls) {
      connection_->start_tls(deadline_);
      probe_.passed("TLS",
                    config_.connecting.verify ? "the server's certificate is accepted"
                                              : "encrypted, and the server's certificate is not verified",
                    config_.connecting.verify ? "" : "Leave out enable_ssl_certificate_verification.");
    }
    connection_->log_in(deadline_);
    probe_.passed("login", "the server accepts " + config_.connecting.who());
    const size_t most = connection_->max_payload();
    if (most < config_.max_message_bytes)
      probe_.passed("max_payload", "max_payload of the server is " + std::to_string(most) + " bytes",
                    "Set max_message_bytes to that, so that larger events are refused when they are enqueued.");
  }

  /* The answer to what has been written with this number, or the server's words that it is not allowed. */
  Operation answer(uint64_t number, const char *step) {
    for (;;) {
      Operation operation = connection_->wait_next(deadline_, step);
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

  void send() {
    TestEvent test;
    Content content;
    try {
      config_.check_event(test.event);
      config_.maker.make(test.event, content, "outbox-probe");
    } catch (const BadInput &bad) {
      probe_.failed("send", "a test event cannot be sent: " + std::string(bad.what()),
                    "An option is made of values that a test event does not have.");
      return;
    }
    std::string data = content.headers;
    data.append(content.body.data ? content.body.data : "", content.body.len);
    append_publish(content.subject, connection_->inbox(++number_), data, content.headers.size(), connection_->out());
    const std::string subject = "subject \"" + content.subject + "\"";
    Operation operation = answer(number_, "send");
    if (operation.kind == Operation::Kind::Error) {
      probe_.failed("send", "the server refuses the test message: " + peer_text(operation.text),
                    "Correct the user's permissions.");
      return;
    }
    Acknowledgement answered = read_acknowledgement(operation);
    if (answered.outcome == Outcome::Sent)
      probe_.passed("send", "a stream has stored a test message of type " + std::string(TestEvent::type) + " with " +
                                subject);
    else
      probe_.failed("send", subject + " " + answered.why, "A stream may be there for other types of events only.");
  }

  const NatsConfig &config_;
  Probe &probe_;
  Deadline deadline_;
  std::unique_ptr<Connection> connection_;
  uint64_t number_ = 0;
  bool may_ask_ = true;
};

}  // namespace

void probe_nats(const NatsConfig &config, Probe &probe) {
  try {
    NatsProbe(config, probe).run();
  } catch (const Cancelled &) {
    probe.failed("probe", "no answer in time");
  }
}

}  // namespace outbox::nats
