package integration_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestGeneratedLabels checks which objects get the labels that the server adds to their Pods: a
// Job does unless it has labels of its own.
func TestGeneratedLabels(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const pod = `"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}`
	generated := []string{"batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"}
	for _, row := range []struct {
		name, labels, template string
		want                   []string
	}{
		{"neither", "", ``, generated},
		{"template", "", `{"app":"x"}`, append([]string{"app"}, generated...)},
		{"both", `{"app":"x"}`, `{"app":"x"}`, []string{"app"}},
		{"own", `{"app":"x"}`, ``, []string{"app"}},
		{"empty", `{}`, `{"app":"x"}`, append([]string{"app"}, generated...)},
	} {
		for _, verb := range []string{"POST", "APPLY"} {
			name := row.name + "-" + strings.ToLower(verb)
			metadata, template := `{"name":"`+name+`"}`, ""
			if row.labels != "" {
				metadata = `{"name":"` + name + `","labels":` + row.labels + `}`
			}
			if row.template != "" {
				template = `"metadata":{"labels":` + row.template + `},`
			}
			path := "/apis/batch/v1/namespaces/default/jobs"
			if verb == "APPLY" {
				path += "/" + name + "?fieldManager=m"
			}
			code, _, b := exchange(t, c, verb, path, `{"apiVersion":"batch/v1","kind":"Job","metadata":`+metadata+`,"spec":{"template":{`+template+pod+`}}}`)
			want := slices.Sorted(slices.Values(row.want))
			for _, from := range []string{verb, "GET"} {
				if from == "GET" {
					code, _, b = exchange(t, c, http.MethodGet, "/apis/batch/v1/namespaces/default/jobs/"+name, "")
				}
				var o struct {
					Metadata struct{ Labels map[string]string }
				}
				if err := json.Unmarshal(b, &o); err != nil || code >= 300 {
					t.Fatalf("%s: %d %s", name, code, b)
				}
				var got []string
				for l := range o.Metadata.Labels {
					got = append(got, l)
				}
				if slices.Sort(got); !slices.Equal(got, want) {
					t.Errorf("%s of %s: labels %q, want %q", from, name, got, want)
				}
			}
			_, found := servertest.Get(t, c, "/apis/batch/v1/jobs?labelSelector=job-name="+name)
			if has := strings.Contains(found, `"name":"`+name+`"`); has != slices.Contains(want, "job-name") {
				t.Errorf("%s: found by job-name: %t", name, has)
			}
			code, _, b = exchange(t, c, "MERGE", "/apis/batch/v1/namespaces/default/jobs/"+name, `{"metadata":{"labels":{"more":"1"}}}`)
			if code != 200 || pick(t, b, "spec.template.metadata.labels.more") != "null" {
				t.Errorf("a label of %s: %d %s", name, code, b)
			}
		}
	}
}
