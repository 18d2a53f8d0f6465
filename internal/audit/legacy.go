package audit

import (
	"strconv"
	"time"
)

// appendLegacy appends the event at a stage as a line of text, the format legacy.
func (e *Event) appendLegacy(to []byte, stage Stage) []byte {
	user, groups, asUser, asGroups := "<none>", []string(nil), "<self>", []string(nil)
	if e.User != nil && e.User.Name != "" {
		user, groups = e.User.Name, e.User.Groups
	}
	if e.Impersonated != nil {
		asUser, asGroups = e.Impersonated.Name, e.Impersonated.Groups
	}
	namespace, ip, code := "<none>", "<unknown>", "<deferred>"
	if e.Object != nil && e.Object.Namespace != "" {
		namespace = e.Object.Namespace
	}
	if len(e.SourceIPs) > 0 {
		ip = e.SourceIPs[0]
	}
	if e.Status != nil {
		code = strconv.Itoa(int(e.Status.Code))
	}
	to = e.Received.AppendFormat(to, time.RFC3339Nano)
	to = strconv.AppendQuote(append(to, " AUDIT: id="...), e.AuditID)
	to = strconv.AppendQuote(append(to, " stage="...), stage.String())
	to = strconv.AppendQuote(append(to, " ip="...), ip)
	to = strconv.AppendQuote(append(to, " method="...), e.Verb)
	to = strconv.AppendQuote(append(to, " user="...), user)
	to = strconv.AppendQuote(append(to, " groups="...), quoted(groups, "<none>"))
	to = strconv.AppendQuote(append(to, " as="...), asUser)
	to = strconv.AppendQuote(append(to, " asgroups="...), quoted(asGroups, "<lookup>"))
	to = strconv.AppendQuote(append(to, " user-agent="...), e.UserAgent)
	to = strconv.AppendQuote(append(to, " namespace="...), namespace)
	to = strconv.AppendQuote(append(to, " uri="...), e.RequestURI)
	return append(append(append(to, ` response="`...), code...), '"', '\n')
}

// quoted returns quoted words with commas between them; none if there are none.
func quoted(all []string, none string) string {
	if len(all) == 0 {
		return none
	}
	var b []byte
	for i, one := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendQuote(b, one)
	}
	return string(b)
}
