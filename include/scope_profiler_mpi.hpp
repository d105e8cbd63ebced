/*
 * scope_profiler_mpi.hpp - MPI calls of C++ programs as regions, one by one. C++17.
 *
 *     sp::mpi::send(data, count, MPI_DOUBLE, peer, tag, MPI_COMM_WORLD);
 *     sp::mpi::Request request = sp::mpi::irecv(data, count, MPI_DOUBLE, peer, tag, MPI_COMM_WORLD);
 *     sp::mpi::wait(request);
 *
 * They return what MPI returns. The regions are called as those of scope_profiler_mpi.h, which records every call of a program
 * and needs no change of it; when both are in use, each call is recorded once. Only libscope_profiler is needed: without the library
 * for MPI, communicators other than MPI_COMM_WORLD (0) and MPI_COMM_SELF (1) are not told apart.
 */
#ifndef SCOPE_PROFILER_MPI_HPP
#define SCOPE_PROFILER_MPI_HPP

#include "scope_profiler.hpp"
#include "scope_profiler_mpi.h"

#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#ifndef SP_DISABLE_PROFILING
#pragma weak sp_mpi_region /* NULL when the program is not linked with the library for MPI */
#endif

namespace sp {
namespace mpi {

namespace detail {

enum { shapes = 32 }; /* regions of an operation that differ by bytes, peer and tag, as in the library */

inline long long bytes_of(int count, MPI_Datatype type) noexcept
{
    int size = 0;
    if (count < 0 || type == MPI_DATATYPE_NULL || PMPI_Type_size(type, &size) != MPI_SUCCESS || size < 0) return -1;
    return static_cast<long long>(count) * size;
}

inline int peer_of(int rank) noexcept
{
    return rank == MPI_PROC_NULL ? -2 : rank >= 0 ? rank : -1;
}

#ifndef SP_DISABLE_PROFILING

inline int number_of(MPI_Comm comm) noexcept
{
    return comm == MPI_COMM_WORLD ? 0 : comm == MPI_COMM_SELF ? 1 : -1;
}

inline const char *kind_of(const char *operation) noexcept
{
    if (std::strcmp(operation, "wait") == 0) return "wait";
    for (const char *word : {"send", "recv", "isend", "irecv"}) {
        if (std::strcmp(operation, word) == 0) return "point-to-point";
    }
    return "collective";
}

inline std::string name_of(const char *operation, long long bytes, int peer, int root, int tag, int comm, const char *request)
{
    char text[256];
    std::snprintf(text, sizeof text, "mpi:%.32s kind=%s bytes=%lld peer=%d root=%d tag=%d comm=%d%s%.32s", operation,
                  kind_of(operation), bytes, peer, root, tag, comm, request ? " request=" : "", request ? request : "");
    return text;
}

inline int local_region(const char *operation, long long bytes, int peer, int root, int tag, int comm, const char *request)
{
    static std::mutex mutex;
    static std::map<std::string, std::map<std::string, int>> *const groups = new std::map<std::string, std::map<std::string, int>>;
    const std::string rest = name_of(operation, -1, -1, root, -1, comm, request);
    const std::string name = name_of(operation, bytes, peer, root, tag, comm, request);
    const std::lock_guard<std::mutex> guard(mutex);
    std::map<std::string, int> &group = (*groups)[rest];
    const auto known = group.find(name);
    if (known != group.end()) return known->second;
    if (group.size() >= shapes) return sp_region(rest.c_str());
    const int region = sp_region(name.c_str());
    if (region >= 0) group[name] = region;
    return region;
}

inline int region_of(const char *operation, long long bytes, int peer, int root, int tag, MPI_Comm comm, const char *request = nullptr)
{
    if (!sp_is_active()) return SP_INVALID_REGION;
    if (&::sp_mpi_region != nullptr) return ::sp_mpi_region(operation, bytes, peer, root, tag, comm, request);
    return local_region(operation, bytes, peer, root, tag, number_of(comm), request);
}

#else

inline int region_of(const char *, long long, int, int, int, MPI_Comm, const char * = nullptr) { return SP_INVALID_REGION; }

#endif

} // namespace detail

/* A request, with what its wait is called by. It moves, and is waited for once. */
class Request {
public:
    Request() noexcept
        : request_(MPI_REQUEST_NULL), bytes_(-1), peer_(-1), tag_(-1), comm_(MPI_COMM_WORLD), operation_(nullptr), error_(MPI_SUCCESS)
    {
    }
    Request(MPI_Request request, long long bytes, int peer, int tag, MPI_Comm comm, const char *operation, int error = MPI_SUCCESS) noexcept
        : request_(request), bytes_(bytes), peer_(peer), tag_(tag), comm_(comm), operation_(operation), error_(error)
    {
    }
    Request(Request &&other) noexcept : Request() { swap(other); }
    Request &operator=(Request &&other) noexcept
    {
        Request taken(std::move(other));
        swap(taken);
        return *this;
    }
    Request(const Request &) = delete;
    Request &operator=(const Request &) = delete;

    MPI_Request &native() noexcept { return request_; }
    const MPI_Request &native() const noexcept { return request_; }
    bool active() const noexcept { return request_ != MPI_REQUEST_NULL; }
    int error() const noexcept { return error_; } /* of the call that made it, or of the wait */

    friend int wait(Request &request, MPI_Status *status);

private:
    void swap(Request &other) noexcept
    {
        std::swap(request_, other.request_);
        std::swap(bytes_, other.bytes_);
        std::swap(peer_, other.peer_);
        std::swap(tag_, other.tag_);
        std::swap(comm_, other.comm_);
        std::swap(operation_, other.operation_);
        std::swap(error_, other.error_);
    }

    MPI_Request request_;
    long long bytes_;
    int peer_, tag_;
    MPI_Comm comm_;
    const char *operation_;
    int error_;
};

inline int send(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
    Scope scope(detail::region_of("send", detail::bytes_of(count, type), detail::peer_of(to), -1, tag, comm));
    return PMPI_Send(data, count, type, to, tag, comm);
}

inline int recv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status = MPI_STATUS_IGNORE)
{
    Scope scope(detail::region_of("recv", detail::bytes_of(count, type), detail::peer_of(from), -1, tag < 0 ? -1 : tag, comm));
    return PMPI_Recv(data, count, type, from, tag, comm, status);
}

inline Request isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
    const long long bytes = detail::bytes_of(count, type);
    MPI_Request request = MPI_REQUEST_NULL;
    Scope scope(detail::region_of("isend", bytes, detail::peer_of(to), -1, tag, comm));
    const int error = PMPI_Isend(data, count, type, to, tag, comm, &request);
    return Request(request, bytes, detail::peer_of(to), tag, comm, "isend", error);
}

inline Request irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm)
{
    const long long bytes = detail::bytes_of(count, type);
    MPI_Request request = MPI_REQUEST_NULL;
    Scope scope(detail::region_of("irecv", bytes, detail::peer_of(from), -1, tag < 0 ? -1 : tag, comm));
    const int error = PMPI_Irecv(data, count, type, from, tag, comm, &request);
    return Request(request, bytes, detail::peer_of(from), tag < 0 ? -1 : tag, comm, "irecv", error);
}

inline int wait(Request &request, MPI_Status *status = MPI_STATUS_IGNORE)
{
    Scope scope(detail::region_of("wait", request.bytes_, request.peer_, -1, request.tag_, request.comm_, request.operation_));
    request.error_ = PMPI_Wait(&request.request_, status);
    return request.error_;
}

inline int barrier(MPI_Comm comm)
{
    Scope scope(detail::region_of("barrier", 0, -1, -1, -1, comm));
    return PMPI_Barrier(comm);
}

inline int bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    Scope scope(detail::region_of("bcast", detail::bytes_of(count, type), -1, root, -1, comm));
    return PMPI_Bcast(data, count, type, root, comm);
}

inline int reduce(const void *sent, void *got, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm)
{
    Scope scope(detail::region_of("reduce", detail::bytes_of(count, type), -1, root, -1, comm));
    return PMPI_Reduce(sent, got, count, type, op, root, comm);
}

inline int allreduce(const void *sent, void *got, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    Scope scope(detail::region_of("allreduce", detail::bytes_of(count, type), -1, -1, -1, comm));
    return PMPI_Allreduce(sent, got, count, type, op, comm);
}

} // namespace mpi
} // namespace sp

#endif
