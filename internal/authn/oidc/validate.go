package oidc

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	certutil "k8s.io/client-go/util/cert"
)

// Compile validates the configuration of an issuer, and compiles its rules. Its errors are those
// of kube-apiserver. No token of a disallowed issuer may be accepted here: it has another
// authenticator. The rules are nil if there are errors.
func Compile(path *field.Path, a *apiserver.JWTAuthenticator, disallowed []string) (*Rules, field.ErrorList) {
	r := &Rules{mappings: a.ClaimMappings}
	all := validateIssuer(path.Child("issuer"), &a.Issuer, disallowed)
	all = append(all, r.compileClaimRules(path.Child("claimValidationRules"), a.ClaimValidationRules)...)
	all = append(all, r.compileMappings(path.Child("claimMappings"), &a.ClaimMappings)...)
	all = append(all, r.compileUserRules(path.Child("userValidationRules"), a.UserValidationRules)...)
	if len(all) > 0 {
		return nil, all
	}
	return r, nil
}

func validateIssuer(path *field.Path, i *apiserver.Issuer, disallowed []string) field.ErrorList {
	var all field.ErrorList
	if i.URL == "" {
		all = append(all, field.Required(path.Child("url"), ""))
	} else {
		if slices.Contains(disallowed, i.URL) {
			sorted := slices.Sorted(slices.Values(disallowed))
			all = append(all, field.Invalid(path.Child("url"), i.URL, fmt.Sprintf("URL must not overlap with disallowed issuers: %s", slices.Compact(sorted))))
		}
		all = append(all, validateURL(path.Child("url"), i.URL)...)
	}
	if i.DiscoveryURL != "" {
		at := path.Child("discoveryURL")
		if i.URL != "" && strings.TrimRight(i.URL, "/") == strings.TrimRight(i.DiscoveryURL, "/") {
			all = append(all, field.Invalid(at, i.DiscoveryURL, "discoveryURL must be different from URL"))
		}
		all = append(all, validateURL(at, i.DiscoveryURL)...)
	}
	all = append(all, validateAudiences(path, i)...)
	if i.CertificateAuthority != "" {
		if _, err := certutil.NewPoolFromBytes([]byte(i.CertificateAuthority)); err != nil {
			all = append(all, field.Invalid(path.Child("certificateAuthority"), "<omitted>", err.Error()))
		}
	}
	switch i.EgressSelectorType {
	case "", apiserver.EgressSelectorControlPlane, apiserver.EgressSelectorCluster:
	default:
		all = append(all, field.Invalid(path.Child("egressSelectorType"), i.EgressSelectorType, "egress selector must be either controlplane or cluster"))
	}
	return all
}

func validateURL(path *field.Path, text string) field.ErrorList {
	u, err := url.Parse(text)
	if err != nil {
		return field.ErrorList{field.Invalid(path, text, err.Error())}
	}
	var all field.ErrorList
	for _, rule := range []struct {
		broken bool
		detail string
	}{
		{u.Scheme != "https", "URL scheme must be https"},
		{u.User != nil, "URL must not contain a username or password"},
		{u.RawQuery != "", "URL must not contain a query"},
		{u.Fragment != "", "URL must not contain a fragment"},
	} {
		if rule.broken {
			all = append(all, field.Invalid(path, text, rule.detail))
		}
	}
	return all
}

func validateAudiences(path *field.Path, i *apiserver.Issuer) field.ErrorList {
	at := path.Child("audiences")
	if len(i.Audiences) == 0 {
		return field.ErrorList{field.Required(at, fmt.Sprintf("at least one %s is required", at))}
	}
	var all field.ErrorList
	seen := map[string]bool{}
	for n, audience := range i.Audiences {
		if audience == "" {
			all = append(all, field.Required(at.Index(n), ""))
		}
		if seen[audience] {
			all = append(all, field.Duplicate(at.Index(n), audience))
		}
		seen[audience] = true
	}
	switch policy := i.AudienceMatchPolicy; {
	case policy == apiserver.AudienceMatchPolicyMatchAny:
	case len(i.Audiences) > 1:
		all = append(all, field.Invalid(path.Child("audienceMatchPolicy"), policy, "audienceMatchPolicy must be MatchAny for multiple audiences"))
	case policy != "":
		all = append(all, field.Invalid(path.Child("audienceMatchPolicy"), policy, "audienceMatchPolicy must be empty or MatchAny for single audience"))
	}
	return all
}

func (r *Rules) compileClaimRules(path *field.Path, rules []apiserver.ClaimValidationRule) field.ErrorList {
	var all field.ErrorList
	claims, expressions := map[string]bool{}, map[string]bool{}
	for n, rule := range rules {
		at := path.Index(n)
		switch {
		case rule.Claim != "" && rule.Expression != "":
			all = append(all, field.Invalid(at, rule.Claim, "claim and expression can't both be set"))
		case rule.Claim != "":
			if rule.Message != "" {
				all = append(all, field.Invalid(at.Child("message"), rule.Message, "may not be specified when claim is set"))
			}
			if claims[rule.Claim] {
				all = append(all, field.Duplicate(at.Child("claim"), rule.Claim))
			}
			claims[rule.Claim] = true
			r.required = append(r.required, requirement{rule.Claim, rule.RequiredValue})
		case rule.Expression != "":
			if rule.RequiredValue != "" {
				all = append(all, field.Invalid(at.Child("requiredValue"), rule.RequiredValue, "may not be specified when expression is set"))
			}
			if expressions[rule.Expression] {
				all = append(all, field.Duplicate(at.Child("expression"), rule.Expression))
				continue
			}
			expressions[rule.Expression] = true
			all = compileInto(all, at.Child("expression"), claimsVariable, rule.Expression, true, func(e *expression) {
				r.ofClaims = append(r.ofClaims, condition{e, rule.Message})
			})
		default:
			all = append(all, field.Required(at, "claim or expression is required"))
		}
	}
	return all
}

func (r *Rules) compileUserRules(path *field.Path, rules []apiserver.UserValidationRule) field.ErrorList {
	var all field.ErrorList
	seen := map[string]bool{}
	for n, rule := range rules {
		at := path.Index(n).Child("expression")
		switch {
		case rule.Expression == "":
			all = append(all, field.Required(at, ""))
		case seen[rule.Expression]:
			all = append(all, field.Duplicate(at, rule.Expression))
		default:
			seen[rule.Expression] = true
			all = compileInto(all, at, userVariable, rule.Expression, true, func(e *expression) {
				r.ofUser = append(r.ofUser, condition{e, rule.Message})
			})
		}
	}
	return all
}

func (r *Rules) compileMappings(path *field.Path, m *apiserver.ClaimMappings) field.ErrorList {
	all := compilePrefixed(nil, path.Child("username"), &m.Username, &r.username)
	if m.Username.Claim == "" && m.Username.Expression == "" {
		all = append(all, field.Required(path.Child("username"), "claim or expression is required"))
	}
	all = compilePrefixed(all, path.Child("groups"), &m.Groups, &r.groups)
	switch at := path.Child("uid"); {
	case m.UID.Claim != "" && m.UID.Expression != "":
		all = append(all, field.Invalid(at, "", "claim and expression can't both be set"))
	case m.UID.Expression != "":
		all = compileInto(all, at.Child("expression"), claimsVariable, m.UID.Expression, false, func(e *expression) { r.uid = e })
	}
	seen := map[string]bool{}
	for n, one := range m.Extra {
		at := path.Child("extra").Index(n)
		all = append(all, validateExtraKey(at.Child("key"), one.Key)...)
		switch {
		case seen[one.Key]:
			all = append(all, field.Duplicate(at.Child("key"), one.Key))
		case one.ValueExpression == "":
			all = append(all, field.Required(at.Child("valueExpression"), ""))
		default:
			all = compileInto(all, at.Child("valueExpression"), claimsVariable, one.ValueExpression, false, func(e *expression) {
				r.extra = append(r.extra, extra{one.Key, e})
			})
		}
		seen[one.Key] = true
	}
	if r.username != nil && r.username.uses("email") && !r.checksEmail() {
		all = append(all, field.Invalid(path.Child("username", "expression"), m.Username.Expression,
			"claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression"))
	}
	return all
}

// compilePrefixed compiles the mapping of a user name or of groups.
func compilePrefixed(all field.ErrorList, path *field.Path, m *apiserver.PrefixedClaimOrExpression, into **expression) field.ErrorList {
	switch {
	case m.Claim != "" && m.Expression != "":
		return append(all, field.Invalid(path, "", "claim and expression can't both be set"))
	case m.Expression != "":
		if m.Prefix != nil {
			all = append(all, field.Invalid(path.Child("prefix"), *m.Prefix, "may not be specified when expression is set"))
		}
		return compileInto(all, path.Child("expression"), claimsVariable, m.Expression, false, func(e *expression) { *into = e })
	case m.Claim != "" && m.Prefix == nil:
		return append(all, field.Required(path.Child("prefix"), "prefix is required when claim is set. It can be set to an empty string to disable prefixing"))
	}
	return all
}

// compileInto compiles an expression and stores it, or appends an error.
func compileInto(all field.ErrorList, path *field.Path, of variable, text string, condition bool, store func(*expression)) field.ErrorList {
	e, err := compile(path, of, text, condition)
	if err != nil {
		return append(all, err)
	}
	store(e)
	return all
}

func validateExtraKey(path *field.Path, key string) field.ErrorList {
	all := utilvalidation.IsDomainPrefixedPath(path, key)
	if key != strings.ToLower(key) {
		all = append(all, field.Invalid(path, key, "must be lowercase"))
	}
	domain, _, _ := strings.Cut(key, "/")
	for _, reserved := range []string{"k8s.io", "kubernetes.io"} {
		if strings.Contains(key, "/") && (domain == reserved || strings.HasSuffix(domain, "."+reserved)) {
			all = append(all, field.Invalid(path, key, "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use"))
		}
	}
	return all
}

// checksEmail reports whether an expression reads email_verified.
func (r *Rules) checksEmail() bool {
	for _, c := range r.ofClaims {
		if c.expression.uses("email_verified") {
			return true
		}
	}
	for _, e := range r.extra {
		if e.value.uses("email_verified") {
			return true
		}
	}
	return r.username.uses("email_verified")
}
