package webhook

import (
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/tidemark-dev/tidemark/internal/patch"
)

// The keys of audit annotations end with the round and with the place of the webhook.
const (
	mutationPrefix     = "mutation.webhook.admission.k8s.io/"
	patchPrefix        = "patch.webhook.admission.k8s.io/"
	failedOpenMutation = "failed-open.mutation.webhook.admission.k8s.io/"
)

func (d *dispatch) key(prefix string, index int) string {
	round := 0
	if d.a.Reinvoking {
		round = 1
	}
	return fmt.Sprintf("%sround_%d_index_%d", prefix, round, index)
}

// annotateCall notes whether a webhook changed the object.
func (d *dispatch) annotateCall(h *hook, index int, changed bool) {
	if !d.c.Audited {
		return
	}
	value, _ := json.Marshal(struct {
		Configuration string `json:"configuration"`
		Webhook       string `json:"webhook"`
		Mutated       bool   `json:"mutated"`
	}{h.configuration, h.name, changed})
	d.a.Annotate(d.key(mutationPrefix, index), string(value))
}

// annotatePatch notes a patch. Events without the objects of the request do not have it.
func (d *dispatch) annotatePatch(h *hook, index int, operations patch.Operations) {
	if !d.c.Audited {
		return
	}
	value, err := json.Marshal(struct {
		Configuration string           `json:"configuration"`
		Webhook       string           `json:"webhook"`
		Patch         patch.Operations `json:"patch,omitempty"`
		PatchType     string           `json:"patchType,omitempty"`
	}{h.configuration, h.name, operations, string(admissionv1.PatchTypeJSONPatch)})
	if err != nil {
		d.c.Log.Warn("the patch of a webhook cannot be noted in audit events", "webhook", h.name, "err", err)
		return
	}
	d.a.Annotate(d.key(patchPrefix, index), string(value))
}

// annotateFailure notes a failure that is ignored.
func (d *dispatch) annotateFailure(h *hook, index int) {
	if d.c.Audited {
		d.a.Annotate(d.key(failedOpenMutation, index), h.name)
	}
}
