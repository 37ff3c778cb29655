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

/* Defines a function that returns `failure` if the condition holds and it is its turn to fail, else what the next
 * definition returns. */
#define MAY_FAIL(result, name, parameters, arguments, condition, kind, failure)                                      \
  result name parameters {                                                                                           \
    NEXT(name);                                                                                                      \
    if ((condition) && fails(kind, #name))                                                                           \
      return failure;                                                                                                \
    return next arguments;                                                                                           \
  }
#define SYSTEM_CALL(result, name, parameters, arguments, condition, error)                                           \
  MAY_FAIL(result, name, parameters, arguments, condition, Kind::Call, (errno = error, -1))
/* What a library answers when memory is short; called by another library, it does not fail. */
#define LIBRARY_CALL(result, name, parameters, arguments, failure)                                                   \
  MAY_FAIL(result, name, parameters, arguments, is_ours(__builtin_return_address(0)), Kind::Allocation, failure)

extern "C" {

SYSTEM_CALL(int, socket, (int domain, int type, int protocol) noexcept, (domain, type, protocol), true, EMFILE)
SYSTEM_CALL(int, socketpair, (int domain, int type, int protocol, int fds[2]) noexcept, (domain, type, protocol, fds),
            true, EMFILE)
SYSTEM_CALL(int, connect, (int fd, const struct sockaddr *address, socklen_t size), (fd, address, size), true,
            ENETUNREACH)
SYSTEM_CALL(int, pipe, (int fds[2]) noexcept, (fds), calls::armed && !is_sanitizer(__builtin_return_address(0)),
            EMFILE)
SYSTEM_CALL(int, pipe2, (int fds[2], int flags) noexcept, (fds, flags), true, EMFILE)
SYSTEM_CALL(int, eventfd, (unsigned count, int flags) noexcept, (count, flags), true, EMFILE)
SYSTEM_CALL(int, timerfd_create, (int clock, int flags) noexcept, (clock, flags), true, EMFILE)
SYSTEM_CALL(int, epoll_create1, (int flags) noexcept, (flags), true, EMFILE)
SYSTEM_CALL(int, epoll_ctl, (int epoll, int what, int fd, struct epoll_event *event) noexcept,
            (epoll, what, fd, event), what == EPOLL_CTL_ADD, ENOMEM)
SYSTEM_CALL(int, epoll_wait, (int epoll, struct epoll_event *events, int most, int timeout),
            (epoll, events, most, timeout), true, EINTR)
SYSTEM_CALL(int, poll, (struct pollfd fds[], nfds_t n, int timeout), (fds, n, timeout), true, EINTR)
SYSTEM_CALL(int, __poll_chk, (struct pollfd fds[], nfds_t n, int timeout, size_t size), (fds, n, timeout, size), true,
            EINTR)
SYSTEM_CALL(ssize_t, send, (int fd, const void *data, size_t size, int flags), (fd, data, size, flags), true,
            ECONNRESET)
SYSTEM_CALL(ssize_t, sendto,
            (int fd, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t length),
            (fd, data, size, flags, to, length), true, ECONNRESET)
SYSTEM_CALL(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags), true,
            ECONNRESET)
SYSTEM_CALL(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size),
            (calls::armed && is_socket(fd)), ECONNRESET)
SYSTEM_CALL(ssize_t, writev, (int fd, const struct iovec *data, int n), (fd, data, n),
            (calls::armed && is_socket(fd)), ECONNRESET)
SYSTEM_CALL(ssize_t, recv, (int fd, void *data, size_t size, int flags), (fd, data, size, flags), true, ECONNRESET)
SYSTEM_CALL(ssize_t, __recv_chk, (int fd, void *data, size_t size, size_t room, int flags),
            (fd, data, size, room, flags), true, ECONNRESET)
SYSTEM_CALL(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags), true, ECONNRESET)
/* Of an eventfd or a pipe: a signal came before there was something to read. */
SYSTEM_CALL(ssize_t, read, (int fd, void *data, size_t size), (fd, data, size), true,
            is_socket(fd) ? ECONNRESET : EINTR)
SYSTEM_CALL(ssize_t, __read_chk, (int fd, void *data, size_t size, size_t room), (fd, data, size, room), true,
            is_socket(fd) ? ECONNRESET : EINTR)

MAY_FAIL(FILE *, fopen, (const char *path, const char *mode), (path, mode), true, Kind::Call,
         (errno = EMFILE, nullptr))
MAY_FAIL(FILE *, fopen64, (const char *path, const char *mode), (path, mode), true, Kind::Call,
         (errno = EMFILE, nullptr))
MAY_FAIL(int, getaddrinfo,
         (const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found),
         (name, service, hints, found), true, Kind::Call, EAI_AGAIN)

int open(const char *path, int flags, ...) {
  NEXT(open);
  va_list more;
  va_start(more, flags);
  const auto mode = static_cast<mode_t>(va_arg(more, int));
  va_end(more);
  if (fails(Kind::Call, "open")) {
    errno = EMFILE;
    return -1;
  }
  return next(path, flags, mode);
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

/* Without their headers, which replace some of them by macros. */
constexpr int curl_e_failed_init = 2, curl_e_out_of_memory = 27, curlm_out_of_memory = 3, curlue_out_of_memory = 7;

LIBRARY_CALL(char *, strdup, (const char *text) noexcept, (text), nullptr)
LIBRARY_CALL(void *, curl_easy_init, (), (), nullptr)
LIBRARY_CALL(void *, curl_multi_init, (), (), nullptr)
LIBRARY_CALL(void *, curl_url, (), (), nullptr)
LIBRARY_CALL(void *, curl_slist_append, (void *list, const char *text), (list, text), nullptr)
LIBRARY_CALL(int, curl_global_init, (long flags), (flags), curl_e_failed_init)
LIBRARY_CALL(int, curl_multi_add_handle, (void *multi, void *easy), (multi, easy), curlm_out_of_memory)
LIBRARY_CALL(int, curl_url_set, (void *url, int part, const char *text, unsigned flags), (url, part, text, flags),
             curlue_out_of_memory)
LIBRARY_CALL(int, curl_url_get, (const void *url, int part, char **text, unsigned flags), (url, part, text, flags),
             curlue_out_of_memory)
LIBRARY_CALL(void *, BIO_new_mem_buf, (const void *data, int size), (data, size), nullptr)
LIBRARY_CALL(void *, BIO_new, (const void *method), (method), nullptr)
LIBRARY_CALL(void *, rd_kafka_new, (int type, void *conf, char *text, size_t size), (type, conf, text, size),
             (snprintf(text, size, "out of memory"), nullptr))

/* The argument is a long, a curl_off_t or a pointer: all have 64 bits and are passed alike. */
int curl_easy_setopt(void *easy, int option, ...) {
  NEXT(curl_easy_setopt);
  va_list more;
  va_start(more, option);
  void *value = va_arg(more, void *);
  va_end(more);
  if (is_ours(__builtin_return_address(0)) && fails(Kind::Allocation, "curl_easy_setopt"))
    return curl_e_out_of_memory;
  return next(easy, option, value);
}

}  // extern "C"
