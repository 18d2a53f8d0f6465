// Command admission records scenarios of admission from a server, and verifies that another one
// does the same. `go test` verifies Tidemark. A scenario is a text: requests, the responses of
// webhooks, and the recordings of the server's responses and the webhooks' requests.
//
//	go run ./test/admission record --server URL --token TOKEN [--audit-log FILE] [--run REGEXP]
//	go run ./test/admission verify --server URL --token TOKEN [--audit-log FILE] [--run REGEXP] [--lags]
//
// README.md describes the format.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"
)

func main() {
	if len(os.Args) < 2 || os.Args[1] != "record" && os.Args[1] != "verify" {
		fmt.Fprintln(os.Stderr, "usage: admission record|verify --server URL --token TOKEN [flags]")
		os.Exit(2)
	}
	if err := command(os.Args[1] == "record", os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "admission:", err)
		os.Exit(1)
	}
}

func command(record bool, args []string) error {
	flags := flag.NewFlagSet("admission", flag.ExitOnError)
	url := flags.String("server", "", "URL of the API server")
	token := flags.String("token", "", "token of a member of system:masters")
	auditLog := flags.String("audit-log", "", "the server's audit log; empty: audit annotations are left out")
	dir := flags.String("dir", "test/admission/testdata", "folder of the scenarios")
	filter := flags.String("run", "", "regular expression: only scenarios whose name matches")
	lags := flags.Bool("lags", record, "wait until the server acts on a changed configuration")
	if err := flags.Parse(args); err != nil {
		return err
	}
	run, err := regexp.Compile(*filter)
	if err != nil {
		return err
	}
	all, err := load(*dir)
	if err != nil {
		return err
	}
	hooks, err := newHookServer()
	if err != nil {
		return err
	}
	defer hooks.close()
	s := &server{url: strings.TrimSuffix(*url, "/"), client: clientWith(*token), auditLog: *auditLog, hooks: hooks, lags: *lags}
	if *lags {
		if err := s.keepParams(context.Background()); err != nil {
			return err
		}
	}
	failed := 0
	for _, sc := range all {
		if !run.MatchString(sc.name) {
			continue
		}
		began := time.Now()
		report, err := s.check(context.Background(), sc, record)
		if err != nil {
			report += err.Error() + "\n"
		}
		if report != "" {
			failed++
			fmt.Printf("FAIL %s: %s\n%s", sc.name, sc.title, report)
			continue
		}
		fmt.Printf("ok   %s (%.1fs)\n", sc.name, time.Since(began).Seconds())
	}
	if failed > 0 {
		return fmt.Errorf("%d scenarios failed", failed)
	}
	return nil
}

// clientWith returns a client that sends a token and trusts each server: it is for tests.
func clientWith(token string) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	return &http.Client{Transport: withToken{token, transport}}
}

type withToken struct {
	token string
	next  http.RoundTripper
}

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", "Bearer "+w.token)
	return w.next.RoundTrip(r)
}

// check runs a scenario. It records the results, or returns the differences from the recorded ones.
func (s *server) check(ctx context.Context, sc *scenario, record bool) (string, error) {
	got, err := s.execute(ctx, sc)
	if record {
		if err != nil {
			return "", err
		}
		for i, st := range sc.steps {
			if s.auditLog == "" {
				got[i][2] = st.want[2]
			}
			st.want = got[i]
		}
		return "", os.WriteFile(sc.file, sc.format(), 0o644)
	}
	var b strings.Builder
	for i := range got {
		st := sc.steps[i]
		for k, kind := range recordings {
			if k == 2 && s.auditLog == "" {
				continue
			}
			if d := diff(st.want[k], got[i][k]); d != "" {
				fmt.Fprintf(&b, "  %s %s: - recorded, + this server\n%s", kind, st.name, d)
			}
		}
	}
	return b.String(), err
}

// diff returns the difference of two texts by lines, with some lines around; "" if they are equal.
func diff(want, got string) string {
	if want == got {
		return ""
	}
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	// common[i][k] is the length of the longest common part of a[i:] and b[k:].
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for k := len(b) - 1; k >= 0; k-- {
			if a[i] == b[k] {
				common[i][k] = common[i+1][k+1] + 1
			} else {
				common[i][k] = max(common[i+1][k], common[i][k+1])
			}
		}
	}
	var lines []string
	for i, k := 0, 0; i < len(a) || k < len(b); {
		switch {
		case i < len(a) && k < len(b) && a[i] == b[k]:
			lines = append(lines, "  "+a[i])
			i, k = i+1, k+1
		case k == len(b) || i < len(a) && common[i+1][k] >= common[i][k+1]:
			lines = append(lines, "- "+a[i])
			i++
		default:
			lines = append(lines, "+ "+b[k])
			k++
		}
	}
	return around(lines)
}

// around keeps the changed lines and three around each.
func around(lines []string) string {
	var b strings.Builder
	skipped := false
	for i, line := range lines {
		near := false
		for k := max(0, i-3); k <= min(len(lines)-1, i+3); k++ {
			near = near || lines[k][0] != ' '
		}
		if !near {
			skipped = true
			continue
		}
		if skipped {
			b.WriteString("    ...\n")
		}
		skipped = false
		b.WriteString("    " + line + "\n")
	}
	return b.String()
}
