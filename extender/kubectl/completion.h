// What kubectl's completion asks its plugins for, by a program of their own, kubectl_complete-NAME.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "extender/kubectl/query_command.h"

namespace muster::extender {

// How the last of the words can go on, in cobra's form: a candidate a line, what it means behind a
// tab, then a line that says whether files are candidates, too. `words` begin with the subcommand.
// `names` answers a query with output "name"; "" where it can't.
std::string Complete(const CLI::App& app, std::vector<std::string> words,
                     const std::function<std::string(const QueryOptions&)>& names);

}  // namespace muster::extender
