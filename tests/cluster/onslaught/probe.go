package onslaught

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"
)

// Probes is how a kubelet's probes fared.
type Probes struct {
	Count         int
	Failed        []string // the first few
	P50, P99, Max time.Duration
}

// Probe asks as a kubelet does, over a connection of its own each time, but every 50 ms.
func Probe(url string, lasts time.Duration) Probes {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	client := &http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		}},
	}
	var probes Probes
	var took []time.Duration
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for until := time.Now().Add(lasts); time.Now().Before(until); <-ticker.C {
		begin := time.Now()
		response, err := client.Get(url)
		if err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
			if response.StatusCode != http.StatusOK {
				err = fmt.Errorf("%s", response.Status)
			}
		}
		took = append(took, time.Since(begin))
		if err != nil && len(probes.Failed) < 5 {
			probes.Failed = append(probes.Failed, err.Error())
		}
	}
	slices.Sort(took)
	probes.Count = len(took)
	if len(took) > 0 {
		probes.P50, probes.P99, probes.Max = took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
	}
	return probes
}
