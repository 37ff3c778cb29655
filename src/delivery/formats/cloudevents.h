/*
 * cloudevents.h: CloudEvents 1.0 in its Kafka protocol binding (https://github.com/cloudevents/spec). Binary: the
 * payload is the value, attributes are headers `ce_...`. Structured: the value is a JSON object that holds all.
 */
#pragma once

#include "../template.h"
#include "placement.h"
#include "record_format.h"

namespace outbox {

class CloudEvents final : public RecordFormat {
public:
  enum class Mode { Binary, Structured };
  CloudEvents(Mode mode, Template source, const std::vector<Placement> &placements);

  void write(const ob_event &event, Record &record) const override;
  void check(const ob_event &event) const override;
  bool reads_payload(const ob_event &event) const override;

private:
  template <class Add> void attributes(const ob_event &event, Record &record, Add add) const;
  void write_binary(const ob_event &event, Record &record) const;
  void write_structured(const ob_event &event, Record &record) const;

  Mode mode_;
  Template source_;
  HeaderList headers_;
};

}  // namespace outbox
