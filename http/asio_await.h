// How this folder's coroutines wait.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace muster::http {

// Errors are values: co_await gives {error, ...} and never throws.
constexpr auto kAwait = boost::asio::as_tuple(boost::asio::use_awaitable);

}  // namespace muster::http
