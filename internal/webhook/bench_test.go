package webhook

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/testkinds"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// hookEnv makes the test binary a webhook: its value is the protocol. So the CPU time of a benchmark's process
// is that of the client alone.
const hookEnv = "TIDEMARK_WEBHOOK_BENCHMARK"

func TestMain(m *testing.M) {
	if protocol := os.Getenv(hookEnv); protocol != "" {
		beHook(protocol)
		return
	}
	os.Exit(tier.Race(m))
}

// beHook serves until the standard input ends.
func beHook(protocol string) {
	const response = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","allowed":true}}`
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, response)
	}))
	s.EnableHTTP2, s.TLS = protocol == "h2", &tls.Config{}
	s.StartTLS()
	defer s.Close()
	fmt.Println(s.URL, base64.StdEncoding.EncodeToString(pemOf(s)))
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// startHook starts a webhook in another process.
func startHook(b *testing.B, protocol string) Target {
	b.Helper()
	command := exec.CommandContext(b.Context(), os.Args[0])
	command.Env = append(os.Environ(), hookEnv+"="+protocol)
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		_ = command.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	address, bundle, _ := strings.Cut(strings.TrimSpace(line), " ")
	ca, err := base64.StdEncoding.DecodeString(bundle)
	if err != nil {
		b.Fatal(err)
	}
	return Target{URL: address, CABundle: ca}
}

// BenchmarkPost calls a webhook in another process, with a review of 3 KiB, by 16 callers. It reports the CPU
// time of the client.
func BenchmarkPost(b *testing.B) {
	head, payload := make([]byte, 160), make([]byte, 3<<10)
	for _, protocol := range []string{"h2", "http/1.1"} {
		target := startHook(b, protocol)
		b.Run(protocol, func(b *testing.B) {
			c := NewConnections(nil, nil)
			defer c.Close()
			e, err := c.Endpoint(target, 512)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.SetParallelism(8)
			before := testkinds.CPUTime()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
					if _, err := e.Post(ctx, 1<<20, head, payload); err != nil {
						b.Error(err)
					}
					cancel()
				}
			})
			b.ReportMetric(float64((testkinds.CPUTime()-before).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}
