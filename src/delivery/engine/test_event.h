/* test_event.h: the event that a probe sends on request. It says that it is a test, and is never stored. */
#pragma once

#include <openssl/rand.h>

#include <chrono>
#include <stdexcept>
#include <string_view>

#include "delivery/base/text_view.h"
#include "delivery/kind.h"

namespace outbox {

struct TestEvent {
  static constexpr std::string_view type = "outbox.probe", aggregate = "outbox", key = "probe",
                                    payload = "{\"test\": true}";
  ob_event event{};

  TestEvent() {
    if (RAND_bytes(event.id, sizeof event.id) != 1)
      throw std::runtime_error("no random number for the test event's id");
    event.id[6] = static_cast<uint8_t>((event.id[6] & 0x0F) | 0x40); /* UUID version 4 */
    event.id[8] = static_cast<uint8_t>((event.id[8] & 0x3F) | 0x80);
    event.created_at_us =
        std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    event.aggregate_type = as_text(aggregate);
    event.aggregate_id = event.key = as_text(key);
    event.event_type = as_text(type);
    event.payload = as_text(payload);
    event.attempt = 1;
    event.is_test = true;
  }
};

}  // namespace outbox
