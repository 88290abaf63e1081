// Why an entry waits, in words.
#pragma once

#include "quota/ledger.h"
#include "quota/quota_scheduler.h"
#include "quota/waiting_room.h"

namespace muster::quota {

// The layout must be current. Says the same until something relevant to it changes.
Wait ReasonOf(const Ledger& ledger, const WaitingRoom& room, const Entry& entry);

// Why the entry's last attempt got nothing. It must stand in a line, and have been refused
// something.
Wait ExplainRefusal(const Ledger& ledger, const Entry& entry);

}  // namespace muster::quota
