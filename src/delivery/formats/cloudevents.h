/*
 * cloudevents.h: CloudEvents 1.0 in its Kafka and HTTP protocol bindings (https://github.com/cloudevents/spec).
 * Binary mode: the payload is the value or body, attributes are headers `ce_...` or `ce-...`. Structured mode: one
 * JSON object contains everything.
 */
#pragma once

#include "delivery/formats/placement.h"
#include "delivery/formats/record_format.h"
#include "delivery/options/template.h"

namespace outbox {

class CloudEvents final : public RecordFormat {
public:
  enum class Mode { Binary, Structured };
  enum class Binding { Kafka, Http };
  CloudEvents(Mode mode, Template source, const std::vector<Placement> &placements, Binding binding = Binding::Kafka);

  /* Of option `source`. */
  static Template parse_source(const std::string &name, const std::string &value); /* throws BadInput */
  static Template default_source();

  void check(const ob_event &event) const override;
  bool reads_payload(const ob_event &event) const override;
  /* Whether a header of this name is an attribute of the CloudEvent. */
  bool is_attribute(std::string_view header) const;

private:
  /* For HTTP, writes only the headers of the format; the sink writes the event's other headers. */
  void write_event(const ob_event &event, Record &record) const override;
  template <class Add> void attributes(const ob_event &event, Record &record, Add add) const;
  template <class Add> void extensions(const ob_event &event, Add add) const;
  void write_binary(const ob_event &event, Record &record) const;
  void write_structured(const ob_event &event, Record &record) const;
  void write_http_binary(const ob_event &event, Record &record) const;

  Mode mode_;
  Binding binding_;
  Template source_;
  HeaderList headers_;
};

}  // namespace outbox
