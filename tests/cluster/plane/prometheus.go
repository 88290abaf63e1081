package plane

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"muster.dev/tests/cluster/process"
)

// Prometheus is a running one: the program of Debian's package.
type Prometheus struct {
	Address string

	process *process.Process
}

// StartPrometheus starts one with this configuration, beside which these files lie.
func (p *Plane) StartPrometheus(config string, files map[string]string) (*Prometheus, error) {
	folder := p.path("prometheus")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	files["prometheus.yaml"] = config
	for name, content := range files {
		if err := os.WriteFile(folder+"/"+name, []byte(content), 0o644); err != nil {
			return nil, err
		}
	}
	addresses, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	one := &Prometheus{Address: addresses[0]}
	if one.process, err = process.Start("prometheus", p.path("logs/prometheus.log"), nil, "prometheus",
		"--config.file="+folder+"/prometheus.yaml", "--storage.tsdb.path="+folder+"/data",
		"--web.listen-address="+one.Address); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(time.Minute)
	for ; ; time.Sleep(100 * time.Millisecond) {
		response, err := httpClient.Get("http://" + one.Address + "/-/ready")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return one, nil
			}
		}
		if !one.process.Running() || time.Now().After(deadline) {
			one.Stop()
			return nil, fmt.Errorf("prometheus isn't ready (%v, %s), log %s:\n%s", err, one.process.Ending(), one.process.LogPath, one.process.Tail(20))
		}
	}
}

// Stop ends it.
func (o *Prometheus) Stop() { o.process.Kill() }

// Alerts tells how each alert stands that isn't inactive, pending or firing, by its name. Of one with
// several sets of labels the firing one counts.
func (o *Prometheus) Alerts() (map[string]string, error) {
	var answer struct {
		Alerts []struct {
			Labels map[string]string
			State  string
		}
	}
	if err := o.ask("alerts", nil, &answer); err != nil {
		return nil, err
	}
	states := map[string]string{}
	for _, alert := range answer.Alerts {
		if name := alert.Labels["alertname"]; states[name] != "firing" {
			states[name] = alert.State
		}
	}
	return states, nil
}

// Samples counts the numbers that a query has given over a span of time, looking each second.
func (o *Prometheus) Samples(query string, from, to time.Time) (int, error) {
	stamp := func(at time.Time) string { return strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64) }
	var answer struct {
		Result []struct{ Values [][2]any }
	}
	if err := o.ask("query_range", url.Values{
		"query": {query}, "start": {stamp(from)}, "end": {stamp(to)}, "step": {"1"},
	}, &answer); err != nil {
		return 0, err
	}
	count := 0
	for _, series := range answer.Result {
		for _, value := range series.Values {
			text, _ := value[1].(string)
			number, err := strconv.ParseFloat(text, 64)
			if err == nil && !math.IsNaN(number) {
				count++
			}
		}
	}
	return count, nil
}

// Value is what a query gives now, of its first series; NaN where there is none.
func (o *Prometheus) Value(query string) (float64, error) {
	var answer struct {
		Result []struct{ Value [2]any }
	}
	if err := o.ask("query", url.Values{"query": {query}}, &answer); err != nil || len(answer.Result) == 0 {
		return math.NaN(), err
	}
	text, _ := answer.Result[0].Value[1].(string)
	return strconv.ParseFloat(text, 64)
}

func (o *Prometheus) ask(what string, parameters url.Values, into any) error {
	response, err := httpClient.Get("http://" + o.Address + "/api/v1/" + what + "?" + parameters.Encode())
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("prometheus answers %s: %s", response.Status, body)
	}
	if answer.Status != "success" {
		return fmt.Errorf("prometheus: %s", answer.Error)
	}
	return json.Unmarshal(answer.Data, into)
}
