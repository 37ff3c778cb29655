/*
 * publish.cpp: libnats alone: publishes messages to JetStream with js_PublishMsgAsync, as its examples show it, with
 * at most WINDOW of them unacknowledged. publish PORT SUBJECT MESSAGES WINDOW PAYLOAD_BYTES prints the seconds that
 * it took.
 */
#include <nats/nats.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

static void must(natsStatus status, const char *what) {
  if (status == NATS_OK)
    return;
  fprintf(stderr, "%s failed: %s\n", what, natsStatus_GetText(status));
  exit(1);
}

static void on_failure(jsCtx *, jsPubAckErr *failure, void *) {
  fprintf(stderr, "not acknowledged: %s\n", failure->ErrText);
  exit(1);
}

int main(int, char **arguments) {
  const std::string url = "nats://127.0.0.1:" + std::string(arguments[1]), subject = arguments[2];
  const uint64_t messages = strtoull(arguments[3], nullptr, 10);
  const size_t payload = strtoull(arguments[5], nullptr, 10);
  natsConnection *connection = nullptr;
  jsCtx *jetstream = nullptr;
  jsOptions options;
  must(natsConnection_ConnectTo(&connection, url.c_str()), "connect");
  jsOptions_Init(&options);
  options.PublishAsync.MaxPending = static_cast<int64_t>(strtoull(arguments[4], nullptr, 10));
  options.PublishAsync.ErrHandler = on_failure;
  must(natsConnection_JetStream(&jetstream, connection, &options), "JetStream");

  const std::string body = "{\"x\": \"" + std::string(payload - 9, 'x') + "\"}";
  auto start = std::chrono::steady_clock::now();
  for (uint64_t n = 1; n <= messages; n++) {
    char id[37];
    snprintf(id, sizeof id, "%08lx-30a9-716d-95da-%012lx",
             static_cast<unsigned long>(start.time_since_epoch().count()) & 0xFFFFFFFF, n);
    natsMsg *message = nullptr;
    must(natsMsg_Create(&message, subject.c_str(), nullptr, body.data(), static_cast<int>(body.size())), "message");
    must(natsMsgHeader_Set(message, "Nats-Msg-Id", id), "header");
    must(natsMsgHeader_Set(message, "id", id), "header");
    must(js_PublishMsgAsync(jetstream, &message, nullptr), "publish");
    natsMsg_Destroy(message);
  }
  must(js_PublishAsyncComplete(jetstream, nullptr), "complete");
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  printf("%.3f\n", took.count());
  jsCtx_Destroy(jetstream);
  natsConnection_Destroy(connection);
}
