/*
 * queue_sink.h: a Sink whose events go through a SendQueue to the sink's own thread. A kind of sink derives from it
 * and makes the messages.
 */
#pragma once

#include "delivery/engine/send_queue.h"

namespace outbox {

template <class Message> class QueueSink : public Sink {
public:
  void keep_acknowledgements(bool keep) override { queue().keep_acknowledgements(keep); }
  uint32_t credit() const override { return queue().credit(); }
  Submitted submit(const ob_event &event) override {
    if (credit() == 0)
      return false;
    queue().push(render(event));
    return true;
  }
  void flush() override { queue().wake_if_needed(); }
  void poll() override { queue().report_failures(); }
  void pause() override { queue().begin_outage(); }
  void release_queued() override { queue().release_queued("not sent yet"); }
  void abandon() override { queue().abandon(); }

protected:
  virtual SendQueue<Message> &queue() const = 0;
  /* On the main thread. Throws BadInput if the event cannot be sent. */
  virtual Message render(const ob_event &event) = 0;
};

}  // namespace outbox
