// What both ends of an HTTP connection do with bytes that they have read.
#pragma once

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <type_traits>

namespace muster::kube::embedded {

// Feeds `buffer` to a parser of Beast's until `done` holds for it, there is an error, or more bytes
// are needed, which is none.
template <typename Parser>
boost::system::error_code Parse(boost::beast::flat_buffer& buffer, Parser& parser,
                                bool (std::type_identity_t<Parser>::*done)() const) {
  while (buffer.size() > 0 && !(parser.*done)()) {
    boost::system::error_code error;
    const size_t used = parser.put(buffer.data(), error);
    buffer.consume(used);
    if (error && error != boost::beast::http::error::need_more) return error;
    if (used == 0) break;
  }
  return {};
}

}  // namespace muster::kube::embedded
