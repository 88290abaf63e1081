// SIGTERM and SIGINT as a question that a rank asks at its step boundaries.
#pragma once

namespace muster::worker {

// From now on the first SIGTERM or SIGINT of this process only makes StopRequested() true; the
// second one ends it, as if this had not been called. Call it once, at the start.
void CatchStopSignals();

// From any thread. Ranks are signalled at different moments: they must agree (AgreeOnAny) before
// one of them acts on it.
bool StopRequested();

}  // namespace muster::worker
