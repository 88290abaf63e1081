package chart

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"sigs.k8s.io/yaml"
)

// watched is the chart with all that watches it turned on.
func watched(t *testing.T) []object {
	t.Helper()
	return rendered(t, "v1.34.2", "--set=serviceMonitor.enabled=true,prometheusRule.enabled=true,dashboard.enabled=true")
}

// as reads an object as the type that it says it is; a field that this hasn't is a mistake.
func as(t *testing.T, one object, into any) {
	t.Helper()
	text, err := yaml.Marshal(one)
	if err == nil {
		err = yaml.UnmarshalStrict(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func alerts(t *testing.T) []monitoring.Rule {
	t.Helper()
	var rules monitoring.PrometheusRule
	as(t, find(t, watched(t), "PrometheusRule", "muster"), &rules)
	if len(rules.Spec.Groups) != 1 {
		t.Fatalf("%d groups", len(rules.Spec.Groups))
	}
	return rules.Spec.Groups[0].Rules
}

// queries are those of the dashboard, by their panel.
func queries(t *testing.T) map[string][]string {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	text, _ := at(find(t, watched(t), "ConfigMap", "muster-dashboard"), "data", "muster.json").(string)
	if err := json.Unmarshal([]byte(text), &dashboard); err != nil {
		t.Fatal(err)
	}
	found, ids := map[string][]string{}, map[int]bool{}
	for _, panel := range dashboard.Panels {
		if ids[panel.ID] {
			t.Errorf("two panels have id %d", panel.ID)
		}
		ids[panel.ID] = true
		if panel.GridPos.X+panel.GridPos.W > 24 {
			t.Errorf("%s is beyond the edge", panel.Title)
		}
		for _, target := range panel.Targets {
			// Grafana's, of the panel's width.
			found[panel.Title] = append(found[panel.Title], strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"))
		}
		if panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("%s shows nothing", panel.Title)
		}
	}
	return found
}

// measured are the families that Muster has, with whether each is a histogram.
func measured(t *testing.T) map[string]bool {
	t.Helper()
	source, err := os.ReadFile("../../extender/metrics.cc")
	if err != nil {
		t.Fatal(err)
	}
	families := map[string]bool{}
	for _, found := range regexp.MustCompile(`(BuildHistogram\(\)\s*\.Name\(|Distribution\(|)"((?:muster|kueue)_[a-z_]+)"`).FindAllStringSubmatch(string(source), -1) {
		families[found[2]] = families[found[2]] || found[1] != ""
	}
	if len(families) < 40 {
		t.Fatalf("only %d families in the source", len(families))
	}
	return families
}

func TestQueriesAreOfMetricsThatExist(t *testing.T) {
	families := measured(t)
	asked := queries(t)
	for _, alert := range alerts(t) {
		asked[alert.Alert] = append(asked[alert.Alert], alert.Expr.String())
	}
	if len(asked) < 30 {
		t.Fatalf("only %d panels and alerts", len(asked))
	}
	language := parser.NewParser(parser.Options{})
	for what, expressions := range asked {
		for _, text := range expressions {
			expression, err := language.ParseExpr(text)
			if err != nil {
				t.Errorf("%s: %v", what, err)
				continue
			}
			parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
				if selector, ok := node.(*parser.VectorSelector); ok {
					name := selector.Name
					part := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")
					if histogram, known := families[name]; known && histogram || !known && !families[part] {
						t.Errorf("%s asks for %s, which nobody measures", what, name)
					}
				}
				return nil
			})
		}
	}
}

func TestTheMonitorFindsEveryMuster(t *testing.T) {
	objects := watched(t)
	var monitor monitoring.ServiceMonitor
	as(t, find(t, objects, "ServiceMonitor", "muster"), &monitor)
	var found []string
	for _, one := range objects {
		if one["kind"] != "Service" {
			continue
		}
		matches := true
		for key, want := range monitor.Spec.Selector.MatchLabels {
			matches = matches && at(one, "metadata", "labels", key) == want
		}
		if matches {
			found = append(found, at(one, "metadata", "name").(string))
			if selector := at(one, "spec", "selector").(object); len(selector) != 1 || selector["app.kubernetes.io/name"] != "muster" {
				t.Errorf("its Service selects only %v", selector)
			}
			if port := at(one, "spec", "ports").([]any)[0]; at(port, "name") != monitor.Spec.Endpoints[0].Port {
				t.Errorf("port %v, want %s", port, monitor.Spec.Endpoints[0].Port)
			}
		}
	}
	if !slices.Equal(found, []string{"muster-metrics"}) {
		t.Errorf("it finds the Services %v", found)
	}
	for _, one := range rendered(t, "v1.34.2") {
		if kind := one["kind"]; kind == "ServiceMonitor" || kind == "PrometheusRule" {
			t.Errorf("%v is there without being asked for; few clusters know it", kind)
		}
	}
}

// Two replicas in two hours without a fault, a sample a minute.
var healthy = map[string]string{
	`muster_leading{pod="a"}`:                                          "1x120",
	`muster_leading{pod="b"}`:                                          "0x120",
	`muster_webhook_in_place{pod="a"}`:                                 "1x120",
	`muster_webhook_in_place{pod="b"}`:                                 "1x120",
	`muster_webhook_certificate_expiration_timestamp_seconds{pod="a"}`: "5000000x120",
	`muster_ready{pod="a"}`:                                            "1x120",
	`muster_ready{pod="b"}`:                                            "1x120",
	`muster_another_kueue{pod="a"}`:                                    "0x120",
	`muster_queue_active{pod="a",queue="team"}`:                        "1x120",
	`muster_watch_state{pod="a",kind="pods",state="synced"}`:           "1x120",
	`muster_watch_state{pod="a",kind="rayjobs",state="absent"}`:        "1x120",
	`muster_watch_undecodable_total{pod="a",kind="pods"}`:              "3x120",
	`muster_action_seconds_count{pod="a",kind="hold",code="OK"}`:       "0+10x120",
	`muster_action_seconds_count{pod="a",kind="hold",code="ABORTED"}`:  "0+1x120",
	`muster_api_requests_total{pod="a"}`:                               "0+101x120",
	`muster_api_answers_total{pod="a",class="2xx"}`:                    "0+100x120",
	`muster_api_answers_total{pod="a",class="5xx"}`:                    "0+1x120",
	`muster_api_unanswered_total{pod="a"}`:                             "0x120",
	`muster_engine_busy_seconds_total{pod="a"}`:                        "0+6x120",
	`muster_filter_seconds_bucket{pod="a",le="0.01"}`:                  "0+100x120",
	`muster_filter_seconds_bucket{pod="a",le="2.5"}`:                   "0+100x120",
	`muster_filter_seconds_bucket{pod="a",le="5"}`:                     "0+100x120",
	`muster_filter_seconds_bucket{pod="a",le="+Inf"}`:                  "0+100x120",
	`muster_http_connections_refused_total{pod="a",server="rest"}`:     "7x120",
	`muster_http_connections_displaced_total{pod="a",server="rest"}`:   "7x120",
	`muster_http_connections_slow_total{pod="a",server="rest"}`:        "7x120",
	`muster_gangs_restarted_total{pod="a"}`:                            "0+0.02x120",
	`muster_leader_transitions_total{pod="a"}`:                         "7x120",
	`muster_events_dropped_total{pod="a"}`:                             "0x120",
	`muster_events_failed_total{pod="a"}`:                              "0x120",
}

// What is otherwise when each alert is to fire.
var faults = map[string]map[string]string{
	"MusterNobodyLeads":        {`muster_leading{pod="a"}`: "0x120"},
	"MusterGateNotInPlace":     {`muster_webhook_in_place{pod="b"}`: "0x120"},
	"MusterCertificateExpires": {`muster_webhook_certificate_expiration_timestamp_seconds{pod="a"}`: "20000x120"},
	"MusterNotReady":           {`muster_ready{pod="b"}`: "0x120"},
	"MusterAnotherKueue":       {`muster_another_kueue{pod="a"}`: "1x120"},
	"MusterQueueInactive":      {`muster_queue_active{pod="a",queue="team"}`: "0x120"},
	"MusterWatchBroken":        {`muster_watch_state{pod="a",kind="pods",state="synced"}`: "", `muster_watch_state{pod="a",kind="pods",state="stale"}`: "1x120"},
	"MusterObjectsUnreadable":  {`muster_watch_undecodable_total{pod="a",kind="pods"}`: "3x115 4x5"},
	"MusterWriteRefused":       {`muster_action_seconds_count{pod="a",kind="suspend",code="PERMISSION_DENIED"}`: "1+1x120"},
	"MusterApiServerFailing":   {`muster_api_answers_total{pod="a",class="5xx"}`: "0+20x120"},
	"MusterEngineBusy":         {`muster_engine_busy_seconds_total{pod="a"}`: "0+54x120"},
	"MusterFilterSlow":         {`muster_filter_seconds_bucket{pod="a",le="0.01"}`: "0+90x120"},
	"MusterConnectionsRefused": {`muster_http_connections_displaced_total{pod="a",server="rest"}`: "7x115 9x5"},
	"MusterGangsRestart":       {`muster_gangs_restarted_total{pod="a"}`: "0+0.2x120"},
	"MusterLeadChangesOften":   {`muster_leader_transitions_total{pod="a"}`: "7+0.2x120"},
	"MusterEventsLost":         {`muster_events_failed_total{pod="a"}`: "0x115 2x5"},
}

// firing are the alerts whose expression holds at the end of the two hours.
func firing(t *testing.T, rules []monitoring.Rule, world map[string]string) []string {
	t.Helper()
	load := "load 1m\n"
	for _, series := range slices.Sorted(maps.Keys(world)) {
		if samples := world[series]; samples != "" {
			load += "  " + series + " " + samples + "\n"
		}
	}
	storage := promqltest.LoadedStorage(t, load)
	defer storage.Close()
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	var names []string
	for _, rule := range rules {
		query, err := engine.NewInstantQuery(t.Context(), storage, nil, rule.Expr.String(), time.Unix(0, 0).Add(2*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		result := query.Exec(t.Context())
		if result.Err != nil {
			t.Fatal(result.Err)
		}
		if vector, ok := result.Value.(promql.Vector); !ok {
			t.Errorf("%s: %T", rule.Alert, result.Value)
		} else if len(vector) > 0 {
			names = append(names, rule.Alert)
		}
	}
	return names
}

func TestEachAlertFiresForItsFaultAndForNoOther(t *testing.T) {
	rules := alerts(t)
	if found := firing(t, rules, healthy); len(found) > 0 {
		t.Errorf("without a fault: %v", found)
	}
	if found := firing(t, rules, nil); !slices.Equal(found, []string{"MusterNobodyLeads"}) {
		t.Errorf("without any Muster: %v", found)
	}
	for _, rule := range rules {
		fault, known := faults[rule.Alert]
		if !known {
			t.Errorf("%s is never seen firing", rule.Alert)
			continue
		}
		world := maps.Clone(healthy)
		maps.Copy(world, fault)
		if found := firing(t, rules, world); !slices.Equal(found, []string{rule.Alert}) {
			t.Errorf("%s: %v", rule.Alert, found)
		}
		if rule.Annotations["summary"] == "" || rule.Labels["severity"] == "" {
			t.Errorf("%s says neither what nor how bad", rule.Alert)
		}
	}
	if len(faults) != len(rules) {
		t.Errorf("%d faults of %d alerts", len(faults), len(rules))
	}
}

// The files are what they are in the chart, as no template looks at their braces.
func TestLabelsOfAlertsStayTheirs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chartFolder, "files/alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "{{ $labels.queue }}") {
		t.Error("no alert names its queue")
	}
	for _, alert := range alerts(t) {
		if alert.Alert == "MusterQueueInactive" && !strings.Contains(alert.Annotations["summary"], "{{ $labels.queue }}") {
			t.Errorf("%q", alert.Annotations["summary"])
		}
	}
}
