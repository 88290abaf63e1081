package cluster

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"muster.dev/tests/cluster/faults"
)

// A mix of gangs and faults, drawn from a seed and given first to the peers and
// then to Muster: how long GPUs stand idle, and are paid for, before their gang
// starts or gives up.

// mixed are gangs that share a NodePool.
type mixed struct {
	gangs, size int
	most        int // nodes
	wrong       []faults.Fault
	arrives     time.Duration // after the begin of the mix
	runs        time.Duration
}

const (
	mixGangs = 20
	mixGPUs  = 8 // of each member, and of each node
	// What the PodGroups say: to Muster their deadline, to coscheduling how long
	// members that have a node wait for the others.
	mixTimeoutSeconds = 60
	// After that the user deletes a gang that hasn't started.
	mixPatience = 6 * time.Minute
)

// mishaps are what befalls the nodes of gangs, and of how many of them. Three of the
// gangs can never start.
var mishaps = []struct {
	gangs  int
	befall func(random *rand.Rand, m *mixed)
}{
	{5, func(random *rand.Rand, m *mixed) { // one node is late
		m.wrong = []faults.Fault{{Kind: faults.RegistrationDelay, Launches: []int{1 + random.IntN(m.size)}, DelaySeconds: 2 + random.Int64N(20)}}
	}},
	{3, func(random *rand.Rand, m *mixed) { // one launch finds no instance
		m.wrong = []faults.Fault{{Kind: faults.InsufficientCapacity, Launches: []int{1 + random.IntN(m.size)}}}
	}},
	{2, func(random *rand.Rand, m *mixed) { // for a time there is none for the last node
		m.wrong = []faults.Fault{{Kind: faults.InsufficientCapacity, FromLaunch: m.size, LastsSeconds: 5 + random.Int64N(20), UnavailableSeconds: 4}}
	}},
	{2, func(_ *rand.Rand, m *mixed) { // there never is
		m.wrong = []faults.Fault{{Kind: faults.InsufficientCapacity, FromLaunch: m.size, UnavailableSeconds: 3}}
	}},
	{1, func(_ *rand.Rand, m *mixed) { // the last node never registers
		m.wrong = []faults.Fault{{Kind: faults.NeverRegisters, FromLaunch: m.size}}
	}},
	{2, func(random *rand.Rand, m *mixed) { // one lacks a GPU at first
		m.wrong = []faults.Fault{{Kind: faults.Devices, Launches: []int{1 + random.IntN(m.size)},
			Resources: map[string]int64{string(gpu): mixGPUs - 1}, LastsSeconds: 5 + random.Int64N(20)}}
	}},
	{2, func(random *rand.Rand, m *mixed) { // an agent is slow
		m.wrong = []faults.Fault{agentTaint(5 + random.Int64N(20))}
	}},
	{1, func(_ *rand.Rand, m *mixed) { // one is taken back while another is awaited
		m.wrong = []faults.Fault{
			{Kind: faults.Interruption, Launches: []int{1}, DelaySeconds: 3},
			{Kind: faults.RegistrationDelay, Launches: []int{2}, DelaySeconds: 12},
		}
	}},
	{2, func(_ *rand.Rand, m *mixed) { // two gangs, and nodes for one and a half
		m.gangs, m.most = 2, m.size+m.size/2
	}},
}

// drawMix draws the sizes and times of the gangs, and of what befalls them.
func drawMix(random *rand.Rand) []mixed {
	var mix []mixed
	for _, mishap := range mishaps {
		for left := mishap.gangs; left > 0; left -= mix[len(mix)-1].gangs {
			size := 2 + random.IntN(3)
			m := mixed{
				gangs: 1, size: size, most: 2 * size,
				arrives: time.Duration(random.IntN(60)) * time.Second,
				runs:    time.Duration(20+random.IntN(40)) * time.Second,
			}
			mishap.befall(random, &m)
			mix = append(mix, m)
		}
	}
	return mix
}

// contestant is who schedules the gangs of a mix.
type contestant struct {
	newCase func(t *testing.T, name string) *Case
	gang    func(c *Case, name string, size, gpus int) *Gang // without its members
}

var (
	theMuster = contestant{newGangCase, (*Case).PodGroup}
	thePeers  = contestant{func(t *testing.T, name string) *Case {
		c := newCase(t, name)
		c.Apply("open_queue.yaml")
		return c
	}, (*Case).peerGang}
)

// What is required of Muster about idle GPUs. It takes a quarter of an hour. The mix
// is the same in each run, because what can be saved depends on how large the gangs
// are that can never start.
func TestPeerMixOfGangsIdlesTwiceAsLongAsWithMuster(t *testing.T) {
	if os.Getenv("MUSTER_SEED") == "" {
		t.Setenv("MUSTER_SEED", "1")
	}
	random, seed := randomSource(t)
	mix := drawMix(random)
	t.Logf("MUSTER_SEED=%d", seed)
	for _, m := range mix {
		t.Logf("%+v", m)
	}
	var peers, muster, withdrawing mixResult
	t.Run("peers", func(t *testing.T) {
		newPeersCase(t, "peers")
		peers = thePeers.play(t, mix)
	})
	t.Run("muster", func(t *testing.T) { muster = theMuster.play(t, mix) })
	t.Run("muster that withdraws nodes", func(t *testing.T) {
		// A node counts as late after half of it: 30 s, where healthy ones take 1 s to 23 s.
		newGangCase(t, "mix").letWithdraw(map[string]any{"registrationDeadline": "60s"})
		withdrawing = theMuster.play(t, mix)
	})
	if t.Failed() {
		return
	}
	for _, with := range []struct {
		who           string
		result        mixResult
		most          float64 // of what idles with the peers, from the registration
		mostLaunching float64 // and from the launch
	}{
		// The instance that never registers is paid for whoever waits for it, unless
		// Muster may withdraw it: else only Karpenter removes it, after a quarter of an
		// hour.
		{"Muster", muster, 0.5, 0.75},
		{"Muster that withdraws nodes", withdrawing, 0.5, 0.5},
	} {
		for _, from := range []struct {
			what         string
			these, peers float64
			most         float64
		}{
			{"registration", with.result.idle.registered, peers.idle.registered, with.most},
			{"launch", with.result.idle.launched, peers.idle.launched, with.mostLaunching},
		} {
			t.Logf("idle from the %s: %.0f GPU-seconds with %s, %.0f with the peers: %.1f %%",
				from.what, from.these, with.who, from.peers, 100*from.these/from.peers)
			if from.these > from.most*from.peers {
				t.Errorf("that is more than %.0f %%", 100*from.most)
			}
		}
		t.Logf("of %d gangs %d started with %s, %d with the peers", mixGangs, with.result.started, with.who, peers.started)
		if with.result.started < peers.started {
			t.Error("those are fewer")
		}
	}
}

type mixResult struct {
	idle    idleGPUs
	inVain  idleGPUs // the part of it where no gang started
	started int
}

// user has a gang of a mix: comes with it, lets it run, and takes it away.
type user struct {
	mixed
	*Case
	name    string
	gang    *Gang
	started time.Time
	gone    bool
}

// play lets a mix happen to its last gang.
func (who contestant) play(t *testing.T, mix []mixed) mixResult {
	t.Helper()
	users := make([][]*user, len(mix)) // of each NodePool
	for i, m := range mix {
		c := who.newCase(t, "mix")
		c.NodePool("pool", mixGPUs, m.most, time.Second, m.wrong...)
		for k := range m.gangs {
			users[i] = append(users[i], &user{mixed: m, Case: c, name: fmt.Sprintf("gang%d", k)})
		}
	}
	begin := time.Now()
	for left := mixGangs; left > 0; time.Sleep(500 * time.Millisecond) {
		left = 0
		for _, sharing := range users {
			for _, one := range sharing {
				if !one.goOn(who, time.Since(begin)) {
					left++
				}
			}
		}
	}
	end := time.Now()
	var result mixResult
	for i, m := range mix {
		var gangs []*Gang
		started := 0
		starts := make([]time.Duration, m.gangs)
		for k, one := range users[i] {
			gangs = append(gangs, one.gang)
			if !one.started.IsZero() {
				started++
				starts[k] = one.started.Sub(one.gang.Created).Round(100 * time.Millisecond)
			}
		}
		c := users[i][0].Case
		idle := c.idle(gangs, m.size, mixGPUs, end)
		result.idle = result.idle.plus(idle)
		result.started += started
		if started == 0 {
			result.inVain = result.inVain.plus(idle)
		}
		t.Logf("%d of %d, started after %v (0s: never), %d NodeClaims, idle for %.0f GPU-seconds from the launch, %.0f from the registration: %+v",
			m.gangs, m.size, starts, len(c.Claims()), idle.launched, idle.registered, m.wrong)
	}
	t.Logf("in %v: %d gangs started, idle for %.0f GPU-seconds from the launch, %.0f from the registration; %.0f and %.0f of them in vain",
		end.Sub(begin).Round(time.Second), result.started, result.idle.launched, result.idle.registered, result.inVain.launched, result.inVain.registered)
	return result
}

// goOn does what is due, and tells whether nothing more is.
func (u *user) goOn(who contestant, now time.Duration) bool {
	switch {
	case u.gone || now < u.arrives:
	case u.gang == nil:
		u.gang = who.gang(u.Case, u.name, u.size, mixGPUs)
		u.gang.setScheduleTimeout(mixTimeoutSeconds)
		u.gang.AddMembers(u.size)
	case u.started.IsZero() && u.gang.Count(running) >= u.size:
		u.started = time.Now()
	case u.started.IsZero() && time.Since(u.gang.Created) > mixPatience,
		!u.started.IsZero() && time.Since(u.started) > u.runs:
		u.gang.Delete()
		u.gone = true
	}
	return u.gone
}
