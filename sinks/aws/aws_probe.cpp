/*
 * aws_probe.cpp: uses the transfer and the signature of a delivery. Whether the target is there is asked with a right
 * that sending does not need; without that right the test message shows it.
 */
#include "aws_probe.h"

#include <ctime>

#include "delivery/base/text.h"
#include "delivery/http/http_loop.h"
#include "delivery/http/http_probe.h"
#include "delivery/http/http_transfer.h"
#include "classify_response.h"
#include "signer.h"

namespace outbox::aws_sink {
namespace {

class AwsProbe {
public:
  AwsProbe(const std::shared_ptr<const AwsConfig> &config, Probe &probe)
      : config_(*config), peer_(config), probe_(probe) {}

  void run() {
    if (HttpProbe(peer_, config_.target.url, probe_).connects() && has_credentials() && asks())
      probe_.can_deliver();
  }

private:
  bool failed(const char *step, const std::string &message, const std::string &hint = {}) {
    probe_.failed(step, message, hint);
    return false;
  }

  bool has_credentials() {
    try {
      credentials_ = config_.credentials->fetch([this] { return probe_.over(); }).value;
    } catch (const std::exception &failure) {
      return failed("credentials", failure.what());
    }
    probe_.passed("credentials",
                  "access key id " + credentials_.access_key_id + " of " + std::string(config_.credentials->name()));
    return true;
  }

  /* The answer's status is 0 if there is none; then the step has failed. */
  long ask(const char *step, const Content &content, std::string &body, std::string &error_type, std::string &date) {
    HttpTransfer transfer(peer_, probe_.sink(), config_.target.url);
    transfer.prepare({}, signed_headers(config_.target, content, credentials_, time(nullptr)), content.body);
    const CURLcode code = HttpProbe::run(transfer, probe_);
    if (auto why = transfer.no_answer(code)) {
      probe_.failed(step, why->error);
      return 0;
    }
    body = masked(config_, credentials_, transfer.body(), transfer.body_is_cut());
    error_type = masked(config_, credentials_, transfer.header("x-amzn-errortype"), false);
    date = transfer.header("Date");
    return transfer.status();
  }

  bool refused(const char *step, const Fault &fault, Cause cause, const std::string &date) {
    std::string hint = sentence(remedy(cause, config_.target));
    if (cause == Cause::Clock)
      if (auto ahead = clock_ahead(date))
        hint = sentence(clock_text(*ahead)) + " " + hint;
    return failed(step, fact_of(fault, config_.target), hint);
  }

  bool asks() {
    std::string body, error_type, date;
    const long status = ask("target", question(config_.target), body, error_type, date);
    if (status == 0)
      return false;
    const Fault fault = fault_of(config_.target, {status, body, error_type});
    const std::string &name = config_.target.name;
    if (!fault.is_none()) {
      const Cause cause = cause_of(fault);
      if (cause != Cause::Denied)
        return refused("target", fault, cause, date);
      if (config_.target.may_be_void())
        return failed("target",
                      "it is not known whether " + name + " is there, and AWS drops events for a bus that is not",
                      std::string("Allow ") + config_.target.words().right_to_ask + ".");
      probe_.passed("target", "the sink's identity may not ask whether " + name + " is there",
                    std::string("Events need no right to ask; for this check allow ") +
                        config_.target.words().right_to_ask + ".");
      return true;
    }
    probe_.passed("target", name + " is there");
    return true;
  }

  const AwsConfig &config_;
  const std::shared_ptr<const HttpPeer> peer_;
  Probe &probe_;
  aws::Credentials credentials_;
};

}  // namespace

void probe_aws(const std::shared_ptr<const AwsConfig> &config, Probe &probe) {
  init_libcurl();
  AwsProbe(config, probe).run();
}

}  // namespace outbox::aws_sink
