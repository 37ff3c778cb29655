/*
 * target.cpp: any owner of a sink chooses its target, and the database server may be where private services trust it.
 * So requests go to a host whose name is AWS's own, made of the region; only a superuser names another one, by the
 * option `endpoint`.
 */
#include "target.h"

#include <algorithm>

#include "delivery/base/text.h"
#include "delivery/http/url_parts.h"
#include "delivery/identity/aws_credentials.h"

namespace outbox::aws_sink {
namespace {

constexpr const char *target_examples =
    "Examples: 'https://sqs.eu-central-1.amazonaws.com/123456789012/orders' (Amazon SQS), "
    "'arn:aws:sns:eu-central-1:123456789012:orders' (Amazon SNS), "
    "'arn:aws:events:eu-central-1:123456789012:event-bus/orders' (Amazon EventBridge).";
constexpr const char *endpoint_example = "Example: 'https://vpce-0123-abcd.sqs.eu-central-1.vpce.amazonaws.com'.";
constexpr const char *region_example = "Example: 'eu-central-1'.";
constexpr std::string_view fifo_suffix = ".fifo", bus_prefix = "event-bus/";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}
bool is_name_char(char c) {
  return is_digit(c) || is_lower(c) || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
}

template <class Test> bool all(std::string_view text, size_t most, Test test) {
  return !text.empty() && text.size() <= most && std::all_of(text.begin(), text.end(), test);
}

/* "eu-central-1": lower-case words and a number. */
bool is_region(std::string_view text) {
  auto parts = split(text, '-');
  return text.size() <= 40 && parts.size() >= 3 && all(parts.back(), 2, is_digit) &&
         all(parts.front(), 8, is_lower) && std::all_of(parts.begin(), parts.end() - 1, [](std::string_view part) {
           return all(part, 16, [](char c) { return is_lower(c) || is_digit(c); });
         });
}

/* The name of a queue or topic: 80 or 256 characters with the suffix. */
bool is_name(std::string_view name, size_t most) {
  if (name.size() > most)
    return false;
  if (name.ends_with(fifo_suffix))
    name.remove_suffix(fifo_suffix.size());
  return all(name, most, is_name_char);
}

/* "arn:aws:sns:eu-central-1:123456789012:orders" in its parts. */
struct Arn {
  std::string_view region, resource;
  bool valid = false;

  Arn(std::string_view text, std::string_view service) {
    auto parts = split(text, ':');
    if (parts.size() != 6 || text.find_first_of(" \t\r\n") != text.npos) /* split() trims */
      return;
    region = parts[3];
    resource = parts[5];
    valid = parts[0] == "arn" && parts[1].starts_with("aws") && parts[2] == service && is_region(region) &&
            all(parts[4], 12, is_digit) && parts[4].size() == 12;
  }
};

std::string_view host_of(std::string_view origin) {
  origin.remove_prefix(origin.find("://") + 3);
  return origin;
}

/* The domain after the region in the names of AWS's hosts. */
std::string_view domain_of(std::string_view region) {
  return region.starts_with("cn-")     ? "amazonaws.com.cn"
         : region.starts_with("eusc-") ? "amazonaws.eu"
                                       : "amazonaws.com";
}

std::string host_in(const char *service, std::string_view region) {
  return std::string(service) + "." + std::string(region) + "." + std::string(domain_of(region));
}

/* The region in the name of a queue's host; `is_aws`: the host is one of AWS's own. */
std::string_view region_of_queue(std::string_view host, bool &is_aws) {
  is_aws = host == "queue.amazonaws.com";
  if (is_aws)
    return "us-east-1";
  auto labels = split(host, '.');
  if (labels.size() < 3)
    return {};
  for (auto [service, region] : {std::pair(labels[0], labels[1]), {labels[1], labels[0]}})
    if ((service == "sqs" || service == "sqs-fips" || service == "queue") && is_region(region)) {
      std::string_view domain = host.substr(labels[0].size() + labels[1].size() + 2);
      is_aws = domain == domain_of(region) || domain == "api.aws";
      return region;
    }
  return {};
}

struct QueueUrl {
  std::string_view origin, name;
  explicit QueueUrl(const std::string &url) : origin(origin_of(url)) {
    std::string_view path = std::string_view(url).substr(origin.size());
    name = path.substr(std::min(path.rfind('/'), path.size()));
    if (!name.empty())
      name.remove_prefix(1);
  }
};

std::string quoted(const char *noun, std::string_view name) {
  return std::string(noun) + " \"" + std::string(name) + "\"";
}

bool is_url(std::string_view text) {
  return text.starts_with("https://") || text.starts_with("http://");
}

void take_region(const std::string &given, std::string_view known, Target &target) {
  if (!given.empty() && !known.empty() && given != known)
    throw BadInput(OB_BAD_VALUE, aws::AWS_REGION, "options \"aws_region\" and \"target\" differ",
                   "Option \"target\" names region " + std::string(known) + ".",
                   "Leave out \"aws_region\", or correct one of them.");
  if (given.empty() && known.empty())
    throw BadInput(OB_MISSING_OPTION, aws::AWS_REGION, "option \"aws_region\" is required",
                   "Option \"target\" does not name the region.", region_example);
  target.region = given.empty() ? std::string(known) : given;
}

void set_queue(const TargetOptions &options, Target &target) {
  QueueUrl url(options.target);
  bool is_aws = false;
  std::string_view region = region_of_queue(host_of(url.origin), is_aws);
  if (options.endpoint.empty() && (!is_aws || !options.target.starts_with("https://")))
    throw_bad_value(TARGET, options.target, "Its host is none of Amazon SQS, or it is no https URL.",
                    "Give the URL that SQS itself shows. For another host, such as that of a VPC endpoint, a "
                    "superuser sets option \"endpoint\" besides.");
  target.service = Service::Sqs;
  target.name = quoted("queue", url.name);
  target.fifo = url.name.ends_with(fifo_suffix);
  target.url = std::string(url.origin) + "/";
  take_region(options.region, region, target);
}

/* The ARN of a topic or of an event bus, which check_target() has accepted. */
void set_arn(const TargetOptions &options, Target &target) {
  const Arn topic(options.target, "sns"), bus(options.target, "events");
  const Arn &arn = topic.valid ? topic : bus;
  target.service = topic.valid ? Service::Sns : Service::EventBridge;
  target.name =
      topic.valid ? quoted("topic", arn.resource) : quoted("event bus", arn.resource.substr(bus_prefix.size()));
  target.fifo = topic.valid && arn.resource.ends_with(fifo_suffix);
  take_region(options.region, arn.region, target);
  target.url = "https://" + host_in(topic.valid ? "sns" : "events", target.region) + "/";
}

void check_target(const std::string &name, const std::string &value) {
  if (is_url(value)) {
    if (origin_fault(value) != OriginFault::None || value.find_first_of("?#") != value.npos)
      throw_bad_value(name, value, "Expected the URL of a queue.", target_examples);
    if (!is_name(QueueUrl(value).name, 80))
      throw_bad_value(name, value, "It does not end with the name of a queue: letters, digits, - and _, at most 80.",
                      target_examples);
    return;
  }
  const Arn topic(value, "sns"), bus(value, "events");
  auto is_bus_char = [](char c) { return is_name_char(c) || c == '.' || c == '/'; };
  const bool is_topic = topic.valid && is_name(topic.resource, 256);
  const bool is_bus = bus.valid && bus.resource.starts_with(bus_prefix) &&
                      all(bus.resource.substr(bus_prefix.size()), 256, is_bus_char);
  if (!is_topic && !is_bus)
    throw_bad_value(name, value, "Expected the URL of a queue, or the ARN of a topic or of an event bus.",
                    target_examples);
}

void check_region(const std::string &name, const std::string &value) {
  if (!is_region(value))
    throw_bad_value(name, value, "Expected the code of a region.", region_example);
}

void check_endpoint(const std::string &name, const std::string &value) {
  std::string_view origin = origin_of(value);
  std::string_view rest = std::string_view(value).substr(origin.size());
  if (!is_url(value) || origin_fault(value) != OriginFault::None || (rest != "" && rest != "/"))
    throw_bad_value(name, value, "Expected scheme, host and perhaps a port, without a path.", endpoint_example);
}

}  // namespace

std::vector<Row<TargetOptions>> TargetOptions::rows() {
  using Of = TargetOptions;
  return {
      row(TARGET, &Of::target, Text{check_target, "URL or ARN"},
          "What gets the events: the URL of an SQS queue, whose host is one of Amazon SQS unless there is an `endpoint`; or "
          "the ARN of an SNS topic or of an EventBridge bus.")
          .otherwise("required"),
      row(aws::AWS_REGION, &Of::region, Text{check_region, "`eu-central-1`"},
          "Required for the URL of a queue that does not name the region.")
          .otherwise("that of the URL or ARN"),
      row(ENDPOINT, &Of::endpoint, Text{check_endpoint, "URL without a path"},
          "Where requests go instead: a VPC endpoint, moto, LocalStack.")
          .by_superuser()
          .otherwise("AWS's host for the region"),
  };
}

bool Target::may_be_void() const {
  return service == Service::EventBridge && id != "default" && !id.ends_with(":event-bus/default");
}

const ServiceTexts &Target::words() const {
  static constexpr ServiceTexts sqs{"Amazon SQS", "sqs", "sqs:SendMessage", "sqs:GetQueueAttributes"},
      sns{"Amazon SNS", "sns", "sns:Publish", "sns:GetTopicAttributes"},
      event_bridge{"Amazon EventBridge", "events", "events:PutEvents", "events:DescribeEventBus"};
  return service == Service::Sqs ? sqs : service == Service::Sns ? sns : event_bridge;
}

Target Target::of(const TargetOptions &options, bool allow_http) {
  if (options.target.empty())
    throw BadInput(OB_MISSING_OPTION, TARGET, "option \"target\" is required", "No option says where events go.",
                   target_examples);
  Target target;
  target.id = options.target;
  if (is_url(options.target))
    set_queue(options, target);
  else
    set_arn(options, target);
  if (!options.endpoint.empty())
    target.url = std::string(origin_of(options.endpoint)) + "/";
  if (target.url.starts_with("http://") && !allow_http)
    throw_bad_value(ENDPOINT, options.endpoint, "An http URL sends events unencrypted.",
                    "Use https, or let a superuser set the option allow_http to 'true'.");
  UrlParts parts(target.url);
  const std::string port = parts.unusual_port();
  target.host = parts.host + (port.empty() ? "" : ":" + port);
  return target;
}

}  // namespace outbox::aws_sink
