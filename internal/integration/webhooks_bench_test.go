package integration_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
	"github.com/tidemark-dev/tidemark/internal/webhook/webhooktest"
)

// BenchmarkWebhook creates ConfigMaps without and with a validating and a mutating webhook, which run
// in this process. It reports the CPU time of the whole process: that of the client, the server
// and the webhook.
func BenchmarkWebhook(b *testing.B) {
	for _, kind := range []string{"", "validating", "mutating"} {
		b.Run("kind="+kind, func(b *testing.B) {
			c := servertest.Start(b, &tidemark.Server{}).RESTConfig()
			hook := webhooktest.StartQuiet(b)
			h := servertest.Client(b, c)
			must := func(path, body string) {
				if code, text := send(b, h, http.MethodPost, c.Host+path, body); code != http.StatusCreated {
					b.Fatalf("%d %s", code, text)
				}
			}
			if kind != "" {
				must("/apis/admissionregistration.k8s.io/v1/"+kind+"webhookconfigurations", `{"metadata":{"name":"x"},"webhooks":[{"name":"x.example.com","clientConfig":`+hook.Config("/")+
					`,"sideEffects":"None","admissionReviewVersions":["v1"],"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]}]}]}`)
			}
			begin := testkinds.CPUTime()
			n := 0
			for b.Loop() {
				must("/api/v1/namespaces/default/configmaps", fmt.Sprintf(`{"metadata":{"name":"c-%d"},"data":{"k":"v"}}`, n))
				n++
			}
			b.ReportMetric(float64((testkinds.CPUTime()-begin).Nanoseconds())/float64(n)/1000, "cpu-us/op")
		})
	}
}
