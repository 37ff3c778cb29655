/*
 * kafka_connections.h: which connections of a producer are up, how often one was lost, and which broker answers
 * nothing, from what librdkafka tells. A connection to an address of bootstrap_servers has no number of a broker at
 * first. In older versions it gets the number once the broker is known; newer ones open another connection then, and
 * the first may close while the other is used. librdkafka's internal broker, which is always up, has no address.
 */
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace outbox {

class KafkaConnections {
public:
  using Time = std::chrono::steady_clock::time_point;

  /* `id`: the broker's number, -1 = not known. Returns whether a connection came up. */
  bool on_state(int32_t id, const char *name, int port, std::string_view state) {
    if (*name == '\0')
      return false;
    const std::string address = std::string(name) + ":" + std::to_string(port);
    if (state == "UP")
      return up_.insert({address, id}).second;
    if (state == "UPDATE") {
      if (up_.erase({address, -1}) > 0)
        up_.insert({address, id});
    } else {
      unanswered_.erase(id);
      if (up_.erase({address, id}) > 0 && id >= 0)
        most_lost_ = std::max(most_lost_, ++lost_[id]);
    }
    return false;
  }
  /* A broker answers in the order of the requests. */
  void on_request(int32_t id, Time now) {
    if (id >= 0)
      unanswered_[id].push_back(now);
  }
  void on_answer(int32_t id) {
    auto broker = unanswered_.find(id);
    if (broker != unanswered_.end() && !broker->second.empty())
      broker->second.pop_front();
  }
  /* The number of addresses with a connection. */
  int up() const {
    std::set<std::string_view> addresses;
    for (const Connection &each : up_)
      addresses.insert(each.first);
    return static_cast<int>(addresses.size());
  }
  /* How many times the broker was lost that was lost most, so brokers that die together are one loss. Messages are
   * sent only to brokers whose number is known. */
  uint64_t lost() const { return most_lost_; }
  /* The number of a broker that has not answered a request of before this time. */
  std::optional<int32_t> silent_since(Time time) const {
    for (const auto &[id, since] : unanswered_)
      if (!since.empty() && since.front() <= time)
        return id;
    return {};
  }

private:
  using Connection = std::pair<std::string, int32_t>; /* the address, and the broker's number */
  std::set<Connection> up_;
  std::map<int32_t, uint64_t> lost_;               /* connections, by the broker's number */
  std::map<int32_t, std::deque<Time>> unanswered_; /* when the requests were sent, by the same */
  uint64_t most_lost_ = 0;
};

}  // namespace outbox
