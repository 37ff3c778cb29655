/*
 * target.h: what a sink sends to: an SQS queue, an SNS topic or an EventBridge bus, and the host that takes requests
 * for it.
 */
#pragma once

#include <string>
#include <vector>

#include "delivery/options/option_table.h"

namespace outbox::aws_sink {

inline constexpr OptionName TARGET{"target"}, ENDPOINT{"endpoint"};

enum class Service { Sqs, Sns, EventBridge };

/* An empty text: not given. */
struct TargetOptions {
  std::string target, region, endpoint;

  static std::vector<Row<TargetOptions>> rows();
};

/* The words that all targets of a service share. */
struct ServiceTexts {
  const char *service;              /* "Amazon SQS" */
  const char *signing_name;         /* in a signature */
  const char *right, *right_to_ask; /* "sqs:SendMessage", "sqs:GetQueueAttributes" */
};

/* Immutable once it is made. */
struct Target {
  Service service = Service::Sqs;
  std::string id;     /* as AWS wants it in a request: the queue's URL, the topic's or the bus's ARN */
  std::string name;   /* "queue \"orders.fifo\"", for texts */
  std::string region; /* "eu-central-1" */
  std::string url;    /* of all requests: "https://sqs.eu-central-1.amazonaws.com/" */
  std::string host;   /* as in the header Host */
  bool fifo = false;

  /* AWS acknowledges what is sent to a target that does not exist, and drops it. */
  bool may_be_void() const;
  const ServiceTexts &words() const;

  /* Throws BadInput. */
  static Target of(const TargetOptions &options, bool allow_http);
};

}  // namespace outbox::aws_sink
