/*
 * shim.cpp: definitions of operator new, of system calls and of a few library functions in the program itself, which
 * the dynamic linker prefers to those of the libraries. Allocations are C++'s alone, and what libraries answer when
 * theirs fail: within librdkafka and OpenSSL a failed malloc() ends the process, which is their own choice. System
 * calls fail everywhere. A call fails only in a way in which the kernel can let it fail: a write to an eventfd does
 * not, and epoll_ctl() fails for EPOLL_CTL_ADD.
 */
#include "shim.h"

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include <dlfcn.h>
#include <execinfo.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <threads.h>

extern "C" char __executable_start, etext;

namespace calls {

thread_local bool armed = false;

static std::atomic<Injection *> current{nullptr};

void begin(Injection *injection) {
  void *first[1];
  backtrace(first, 1); /* it allocates at its first call */
  current = injection;
}

void end() {
  current = nullptr;
}

/* Counts one, and says whether it must fail. */
static bool fails(Kind kind, const char *name) noexcept {
  Injection *injection = armed ? current.load() : nullptr;
  if (!injection)
    return false;
  long n = ++(kind == Kind::Allocation ? injection->allocations : injection->calls);
  if (kind != injection->kind || n != injection->n)
    return false;
  Armed not_here(false);
  snprintf(injection->name, sizeof injection->name, "%s", name);
  injection->n_frames = backtrace(injection->frames, Injection::most_frames);
  injection->happened = true;
  return true;
}

/* The code under test itself called, and not a library on its own account. */
static bool is_ours(void *caller) {
  return caller >= &__executable_start && caller < &etext;
}

static void *allocate(std::size_t size) {
  if (fails(Kind::Allocation, "operator new"))
    return nullptr;
  return malloc(size ? size : 1);
}

static void *allocate(std::size_t size, std::align_val_t alignment) {
  if (fails(Kind::Allocation, "operator new"))
    return nullptr;
  const auto bytes = static_cast<std::size_t>(alignment);
  return aligned_alloc(bytes, (size + bytes - 1) / bytes * bytes);
}

static void *or_throw(void *memory) {
  if (!memory)
    throw std::bad_alloc();
  return memory;
}

/* A thread under test starts others, which are under test too. */
template <class Result> struct Start {
  Result (*body)(void *);
  void *argument;
  bool armed;

  static Result run(void *self) {
    Start start = *static_cast<Start *>(self);
    free(self);
    calls::armed = start.armed;
    return start.body(start.argument);
  }
  static Start *make(Result (*body)(void *), void *argument) {
    auto *start = static_cast<Start *>(malloc(sizeof(Start)));
    *start = {body, argument, calls::armed};
    return start;
  }
};

}  // namespace calls

using calls::fails;
using calls::is_ours;
using calls::Kind;

/* ---- C++'s allocations ---- */

void *operator new(std::size_t size) {
  return calls::or_throw(calls::allocate(size));
}
void *operator new[](std::size_t size) {
  return calls::or_throw(calls::allocate(size));
}
void *operator new(std::size_t size, const std::nothrow_t &) noexcept {
  return calls::allocate(size);
}
void *operator new[](std::size_t size, const std::nothrow_t &) noexcept {
  return calls::allocate(size);
}
void *operator new(std::size_t size, std::align_val_t alignment) {
  return calls::or_throw(calls::allocate(size, alignment));
}
void *operator new[](std::size_t size, std::align_val_t alignment) {
  return calls::or_throw(calls::allocate(size, alignment));
}
void operator delete(void *memory) noexcept {
  free(memory);
}
void operator delete[](void *memory) noexcept {
  free(memory);
}
void operator delete(void *memory, std::size_t) noexcept {
  free(memory);
}
void operator delete[](void *memory, std::size_t) noexcept {
  free(memory);
}
void operator delete(void *memory, const std::nothrow_t &) noexcept {
  free(memory);
}
void operator delete[](void *memory, const std::nothrow_t &) noexcept {
  free(memory);
}
void operator delete(void *memory, std::align_val_t) noexcept {
  free(memory);
}
void operator delete[](void *memory, std::align_val_t) noexcept {
  free(memory);
}
void operator delete(void *memory, std::size_t, std::align_val_t) noexcept {
  free(memory);
}
void operator delete[](void *memory, std::size_t, std::align_val_t) noexcept {
  free(memory);
}

/* ---- system calls ---- */

static bool is_socket(int fd) {
  struct stat state;
  return fstat(fd, &state) == 0 && S_ISSOCK(state.st_mode);
}

/* UBSan tells by a pipe whether memory is readable. */
static bool is_sanitizer(void *caller) {
  Dl_info library;
  return dladdr(caller, &library) != 0 && strstr(library.dli_fname, "san.so") != nullptr;
}

/* The next definition of the function that this macro stands in. */
#define NEXT(name) static const auto next = reinterpret_cast<decltype(&name)>(dlsym(RTLD_NEXT, #name))

#define FAIL_IF(condition, name, error)                                                                              \
  if ((condition) && fails(Kind::Call, name)) {                                                                      \
    errno = error;                                                                                                   \
    return -1;                                                                                                       \
  }

extern "C" {

int socket(int domain, int type, int protocol) noexcept {
  NEXT(socket);
  FAIL_IF(true, "socket", EMFILE)
  return next(domain, type, protocol);
}

int socketpair(int domain, int type, int protocol, int fds[2]) noexcept {
  NEXT(socketpair);
  FAIL_IF(true, "socketpair", EMFILE)
  return next(domain, type, protocol, fds);
}

int connect(int fd, const struct sockaddr *address, socklen_t size) {
  NEXT(connect);
  FAIL_IF(true, "connect", ENETUNREACH)
  return next(fd, address, size);
}

int pipe(int fds[2]) noexcept {
  NEXT(pipe);
  FAIL_IF(calls::armed && !is_sanitizer(__builtin_return_address(0)), "pipe", EMFILE)
  return next(fds);
}

int pipe2(int fds[2], int flags) noexcept {
  NEXT(pipe2);
  FAIL_IF(true, "pipe2", EMFILE)
  return next(fds, flags);
}

int open(const char *path, int flags, ...) {
  NEXT(open);
  va_list more;
  va_start(more, flags);
  const auto mode = static_cast<mode_t>(va_arg(more, int));
  va_end(more);
  FAIL_IF(true, "open", EMFILE)
  return next(path, flags, mode);
}

FILE *fopen64(const char *path, const char *mode) {
  NEXT(fopen64);
  if (fails(Kind::Call, "fopen")) {
    errno = EMFILE;
    return nullptr;
  }
  return next(path, mode);
}

FILE *fopen(const char *path, const char *mode) {
  NEXT(fopen);
  if (fails(Kind::Call, "fopen")) {
    errno = EMFILE;
    return nullptr;
  }
  return next(path, mode);
}

int eventfd(unsigned count, int flags) noexcept {
  NEXT(eventfd);
  FAIL_IF(true, "eventfd", EMFILE)
  return next(count, flags);
}

int timerfd_create(int clock, int flags) noexcept {
  static const auto next = reinterpret_cast<int (*)(int, int)>(dlsym(RTLD_NEXT, "timerfd_create"));
  FAIL_IF(true, "timerfd_create", EMFILE)
  return next(clock, flags);
}

int epoll_create1(int flags) noexcept {
  NEXT(epoll_create1);
  FAIL_IF(true, "epoll_create1", EMFILE)
  return next(flags);
}

int epoll_ctl(int epoll, int what, int fd, struct epoll_event *event) noexcept {
  NEXT(epoll_ctl);
  FAIL_IF(what == EPOLL_CTL_ADD, "epoll_ctl", ENOMEM)
  return next(epoll, what, fd, event);
}

int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout) {
  NEXT(epoll_wait);
  FAIL_IF(true, "epoll_wait", EINTR)
  return next(epoll, events, most, timeout);
}

int poll(struct pollfd *fds, nfds_t n, int timeout) {
  NEXT(poll);
  FAIL_IF(true, "poll", EINTR)
  return next(fds, n, timeout);
}

int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t size) {
  static const auto next =
      reinterpret_cast<int (*)(struct pollfd *, nfds_t, int, size_t)>(dlsym(RTLD_NEXT, "__poll_chk"));
  FAIL_IF(true, "poll", EINTR)
  return next(fds, n, timeout, size);
}

ssize_t send(int fd, const void *data, size_t size, int flags) {
  NEXT(send);
  FAIL_IF(true, "send", ECONNRESET)
  return next(fd, data, size, flags);
}

ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t length) {
  NEXT(sendto);
  FAIL_IF(true, "sendto", ECONNRESET)
  return next(fd, data, size, flags, to, length);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
  NEXT(sendmsg);
  FAIL_IF(true, "sendmsg", ECONNRESET)
  return next(fd, message, flags);
}

ssize_t write(int fd, const void *data, size_t size) {
  NEXT(write);
  FAIL_IF(calls::armed && is_socket(fd), "write", ECONNRESET)
  return next(fd, data, size);
}

ssize_t writev(int fd, const struct iovec *data, int n) {
  NEXT(writev);
  FAIL_IF(calls::armed && is_socket(fd), "writev", ECONNRESET)
  return next(fd, data, n);
}

ssize_t recv(int fd, void *data, size_t size, int flags) {
  NEXT(recv);
  FAIL_IF(true, "recv", ECONNRESET)
  return next(fd, data, size, flags);
}

ssize_t __recv_chk(int fd, void *data, size_t size, size_t room, int flags) {
  static const auto next =
      reinterpret_cast<ssize_t (*)(int, void *, size_t, size_t, int)>(dlsym(RTLD_NEXT, "__recv_chk"));
  FAIL_IF(true, "recv", ECONNRESET)
  return next(fd, data, size, room, flags);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
  NEXT(recvmsg);
  FAIL_IF(true, "recvmsg", ECONNRESET)
  return next(fd, message, flags);
}

/* Of an eventfd or a pipe: a signal came before there was something to read. */
ssize_t read(int fd, void *data, size_t size) {
  NEXT(read);
  FAIL_IF(true, "read", is_socket(fd) ? ECONNRESET : EINTR)
  return next(fd, data, size);
}

ssize_t __read_chk(int fd, void *data, size_t size, size_t room) {
  static const auto next = reinterpret_cast<ssize_t (*)(int, void *, size_t, size_t)>(dlsym(RTLD_NEXT, "__read_chk"));
  FAIL_IF(true, "read", is_socket(fd) ? ECONNRESET : EINTR)
  return next(fd, data, size, room);
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
  NEXT(getaddrinfo);
  if (fails(Kind::Call, "getaddrinfo"))
    return EAI_AGAIN;
  return next(name, service, hints, found);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *),
                   void *argument) noexcept {
  NEXT(pthread_create);
  if (fails(Kind::Call, "pthread_create"))
    return EAGAIN;
  auto *start = calls::Start<void *>::make(body, argument);
  const int error = next(thread, attributes, calls::Start<void *>::run, start);
  if (error != 0)
    free(start);
  return error;
}

int thrd_create(thrd_t *thread, thrd_start_t body, void *argument) {
  NEXT(thrd_create);
  if (fails(Kind::Call, "thrd_create"))
    return thrd_error;
  auto *start = calls::Start<int>::make(body, argument);
  const int error = next(thread, calls::Start<int>::run, start);
  if (error != thrd_success)
    free(start);
  return error;
}

/* ---- what libraries answer when memory is short ---- */

char *strdup(const char *text) noexcept {
  NEXT(strdup);
  return is_ours(__builtin_return_address(0)) && fails(Kind::Allocation, "strdup") ? nullptr : next(text);
}

/* Declared here: their headers replace some of them by macros. */
void *curl_easy_init();
void *curl_multi_init();
void *curl_url();
void *curl_slist_append(void *list, const char *text);
int curl_global_init(long flags);
int curl_easy_setopt(void *easy, int option, ...);
int curl_multi_add_handle(void *multi, void *easy);
int curl_url_set(void *url, int part, const char *text, unsigned flags);
int curl_url_get(const void *url, int part, char **text, unsigned flags);
void *BIO_new_mem_buf(const void *data, int size);
void *BIO_new(const void *method);
void *rd_kafka_new(int type, void *conf, char *text, size_t size);

#define NULL_IF_OURS(name)                                                                                           \
  if (is_ours(__builtin_return_address(0)) && fails(Kind::Allocation, name))                                         \
    return nullptr;
#define CODE_IF_OURS(name, code)                                                                                     \
  if (is_ours(__builtin_return_address(0)) && fails(Kind::Allocation, name))                                         \
    return code;

void *curl_easy_init() {
  NEXT(curl_easy_init);
  NULL_IF_OURS("curl_easy_init")
  return next();
}

void *curl_multi_init() {
  NEXT(curl_multi_init);
  NULL_IF_OURS("curl_multi_init")
  return next();
}

void *curl_url() {
  NEXT(curl_url);
  NULL_IF_OURS("curl_url")
  return next();
}

void *curl_slist_append(void *list, const char *text) {
  NEXT(curl_slist_append);
  NULL_IF_OURS("curl_slist_append")
  return next(list, text);
}

int curl_global_init(long flags) {
  NEXT(curl_global_init);
  constexpr int failed_init = 2;
  CODE_IF_OURS("curl_global_init", failed_init)
  return next(flags);
}

/* The argument is a long, a curl_off_t or a pointer: all have 64 bits and are passed alike. */
int curl_easy_setopt(void *easy, int option, ...) {
  NEXT(curl_easy_setopt);
  va_list more;
  va_start(more, option);
  void *value = va_arg(more, void *);
  va_end(more);
  constexpr int out_of_memory = 27;
  CODE_IF_OURS("curl_easy_setopt", out_of_memory)
  return next(easy, option, value);
}

int curl_multi_add_handle(void *multi, void *easy) {
  NEXT(curl_multi_add_handle);
  constexpr int out_of_memory = 3;
  CODE_IF_OURS("curl_multi_add_handle", out_of_memory)
  return next(multi, easy);
}

int curl_url_set(void *url, int part, const char *text, unsigned flags) {
  NEXT(curl_url_set);
  constexpr int out_of_memory = 7;
  CODE_IF_OURS("curl_url_set", out_of_memory)
  return next(url, part, text, flags);
}

int curl_url_get(const void *url, int part, char **text, unsigned flags) {
  NEXT(curl_url_get);
  constexpr int out_of_memory = 7;
  CODE_IF_OURS("curl_url_get", out_of_memory)
  return next(url, part, text, flags);
}

void *BIO_new_mem_buf(const void *data, int size) {
  NEXT(BIO_new_mem_buf);
  NULL_IF_OURS("BIO_new_mem_buf")
  return next(data, size);
}

void *BIO_new(const void *method) {
  NEXT(BIO_new);
  NULL_IF_OURS("BIO_new")
  return next(method);
}

void *rd_kafka_new(int type, void *conf, char *text, size_t size) {
  NEXT(rd_kafka_new);
  if (is_ours(__builtin_return_address(0)) && fails(Kind::Allocation, "rd_kafka_new")) {
    snprintf(text, size, "out of memory");
    return nullptr;
  }
  return next(type, conf, text, size);
}

}  // extern "C"
