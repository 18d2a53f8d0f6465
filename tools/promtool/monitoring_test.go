// Package promtool tests deploy/monitoring with the tools of Prometheus.
package promtool

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

const monitoring = "../../deploy/monitoring/"

// TestRules checks the alert rules, and runs their tests.
func TestRules(t *testing.T) {
	for _, args := range [][]string{{"check", "rules", "--lint=all", monitoring + "rules.yaml"}, {"test", "rules", monitoring + "rules_test.yaml"}} {
		c := exec.Command("go", append([]string{"tool", "promtool"}, args...)...)
		c.Env = append(os.Environ(), "GOWORK=off")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestEachAlertIsTested checks that each alert is expected to fire by one of the tests.
func TestEachAlertIsTested(t *testing.T) {
	text, err := os.ReadFile(monitoring + "rules_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name := range expressions(t) {
		if strings.HasPrefix(name, "Tidemark") && !regexp.MustCompile(`alertname: `+name+`\n\s+exp_alerts:`).Match(text) {
			t.Errorf("no test has the alert %s", name)
		}
	}
}

// expressions returns the expressions of rules and dashboard, by their names.
func expressions(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	rules, errs := rulefmt.ParseFile(monitoring+"rules.yaml", false)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			all[r.Alert] = append(all[r.Alert], r.Expr)
		}
	}
	text, err := os.ReadFile(monitoring + "dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], strings.ReplaceAll(target.Expr, "$__rate_interval", "1m"))
		}
	}
	return all
}

var listed = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\| (.*?) \\|")

// TestMetricsExist checks that the metrics and labels of rules and dashboard are in docs/metrics.md, which a test compares
// with a running server.
func TestMetricsExist(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"up": ""} // of each metric
	for _, m := range listed.FindAllStringSubmatch(string(page), -1) {
		names := []string{m[1]}
		if m[2] == "histogram" {
			names = []string{m[1] + "_bucket", m[1] + "_sum", m[1] + "_count"}
		}
		for _, name := range names {
			labels[name] = m[3] + "`job``instance``le`"
		}
	}
	for name, all := range expressions(t) {
		for _, text := range all {
			e, err := parser.ParseExpr(text)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
				v, ok := n.(*parser.VectorSelector)
				if !ok || strings.HasPrefix(v.Name, "go_") || strings.HasPrefix(v.Name, "process_") {
					return nil
				}
				of, known := labels[v.Name]
				if !known {
					t.Errorf("%s: no metric %s", name, v.Name)
				}
				for _, m := range v.LabelMatchers {
					if known && v.Name != "up" && m.Name != model.MetricNameLabel && !strings.Contains(of, "`"+m.Name+"`") {
						t.Errorf("%s: %s has no label %s", name, v.Name, m.Name)
					}
				}
				return nil
			})
		}
	}
}
