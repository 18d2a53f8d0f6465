package audit

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// maxPolicyBytes bounds a policy file.
const maxPolicyBytes = 4 << 20

// policyCodecs decode policies. They report unknown and repeated fields.
var policyCodecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	if err := auditv1.AddToScheme(scheme); err != nil {
		panic(err) // the types are constants of the library
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict)
}()

// ReadPolicy reads a policy file. Unknown and repeated fields are warnings in the log, as in
// kube-apiserver.
func ReadPolicy(path string, log *slog.Logger) (*Policy, error) {
	about, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("failed to read file path %q: %w", path, err)
	}
	if about.Size() > maxPolicyBytes {
		return nil, fmt.Errorf("failed to read file path %q: it has %d bytes, the limit is %d", path, about.Size(), maxPolicyBytes)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("failed to read file path %q: %w", path, err)
	}
	p, strict, err := ParsePolicy(text)
	if err != nil {
		return nil, fmt.Errorf("%w: from file %s", err, path)
	}
	if strict != nil {
		log.Warn("the audit policy has errors, which are ignored", "file", path, "err", strict)
	}
	return p, nil
}

// ParsePolicy reads a policy from YAML or JSON. strict reports unknown and repeated fields, which
// do not count; nil: there are none.
func ParsePolicy(text []byte) (p *Policy, strict, err error) {
	o, kind, err := policyCodecs.UniversalDeserializer().Decode(text, nil, nil)
	if runtime.IsStrictDecodingError(err) && o != nil {
		strict, err = err, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("failed decoding: %w", err)
	}
	policy, ok := o.(*auditv1.Policy)
	if !ok {
		return nil, nil, fmt.Errorf("unknown group version field %v in policy", kind)
	}
	if err := validatePolicy(policy).ToAggregate(); err != nil {
		return nil, nil, err
	}
	if len(policy.Rules) == 0 {
		return nil, nil, fmt.Errorf("loaded illegal policy with 0 rules")
	}
	return compile(policy), strict, nil
}

func validatePolicy(p *auditv1.Policy) field.ErrorList {
	errs := validateStages(p.OmitStages, field.NewPath("omitStages"))
	for i := range p.Rules {
		r, path := &p.Rules[i], field.NewPath("rules").Index(i)
		errs = append(errs, validateLevel(r.Level, path.Child("level"))...)
		errs = append(errs, validatePaths(r.NonResourceURLs, path.Child("nonResourceURLs"))...)
		errs = append(errs, validateResources(r.Resources, path.Child("resources"))...)
		errs = append(errs, validateStages(r.OmitStages, path.Child("omitStages"))...)
		if len(r.NonResourceURLs) > 0 && len(r.Resources)+len(r.Namespaces) > 0 {
			errs = append(errs, field.Invalid(path.Child("nonResourceURLs"), r.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs"))
		}
	}
	return errs
}

func validateLevel(l auditv1.Level, path *field.Path) field.ErrorList {
	switch {
	case l == "":
		return field.ErrorList{field.Required(path, "")}
	case !slices.Contains(levelNames[:], string(l)):
		return field.ErrorList{field.NotSupported(path, l, levelNames[:])}
	}
	return nil
}

func validateStages(stages []auditv1.Stage, path *field.Path) (errs field.ErrorList) {
	for i, s := range stages {
		if !slices.Contains(stageNames[:], string(s)) {
			errs = append(errs, field.Invalid(path.Index(i), string(s), "allowed stages are "+strings.Join(stageNames[:], ",")))
		}
	}
	return errs
}

func validatePaths(urls []string, path *field.Path) (errs field.ErrorList) {
	for i, url := range urls {
		if url == "*" {
			continue
		}
		if !strings.HasPrefix(url, "/") {
			errs = append(errs, field.Invalid(path.Index(i), url, "non-resource URL rules must begin with a '/' character"))
		}
		if at := strings.IndexByte(url, '*'); at >= 0 && at < len(url)-1 {
			errs = append(errs, field.Invalid(path.Index(i), url, "non-resource URL wildcards '*' must be the final character of the rule"))
		}
	}
	return errs
}

func validateResources(all []auditv1.GroupResources, path *field.Path) (errs field.ErrorList) {
	for _, g := range all {
		if g.Group != "" && g.Group != "*" {
			if faults := validation.NameIsDNSSubdomain(g.Group, false); len(faults) > 0 {
				errs = append(errs, field.Invalid(path.Child("group"), g.Group, strings.Join(faults, ",")))
			}
		}
		if len(g.ResourceNames) > 0 && len(g.Resources) == 0 {
			errs = append(errs, field.Invalid(path.Child("resourceNames"), g.ResourceNames, "using resourceNames requires at least one resource"))
		}
	}
	return errs
}
