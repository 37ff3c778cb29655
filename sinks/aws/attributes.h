/* attributes.h: the rules of SQS and SNS for the text and the attributes of a message. All functions throw BadInput.
 */
#pragma once

#include <cstddef>
#include <string_view>

namespace outbox::aws_sink {

/* Of option `headers`, and of an event's header. */
void check_attribute_name(std::string_view name);
void check_attribute(std::string_view name, std::string_view value, bool binary);
void check_attributes(size_t number);
void check_body(std::string_view text);

}  // namespace outbox::aws_sink
