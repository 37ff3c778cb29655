/*
 * handover_sink.h: a Sink whose events go through a Handover to the sink's own thread. A kind of sink derives from it
 * and makes the messages.
 */
#pragma once

#include "delivery/engine/handover.h"

namespace outbox {

template <class Message> class HandoverSink : public Sink {
public:
  void keep_acknowledgements(bool keep) override { handover().keep_acknowledgements(keep); }
  uint32_t credit() const override { return handover().credit(); }
  Submitted submit(const ob_event &event) override {
    if (credit() == 0)
      return false;
    handover().push(render(event));
    return true;
  }
  void flush() override { handover().wake_if_needed(); }
  void poll() override { handover().report_failures(); }
  void pause() override { handover().begin_outage(); }
  void release_queued() override { handover().release_queued("not sent yet"); }
  void abandon() override { handover().abandon(); }

protected:
  virtual Handover<Message> &handover() const = 0;
  /* On the main thread. Throws BadInput if the event cannot be sent. */
  virtual Message render(const ob_event &event) = 0;
};

}  // namespace outbox
