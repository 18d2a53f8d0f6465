package admission

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	configurationHead = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	securityHead      = configurationHead + "- name: PodSecurity\n  configuration:\n    apiVersion: pod-security.admission.config.k8s.io/"
	quotaHead         = configurationHead + "- name: ResourceQuota\n  configuration:\n    apiVersion: "
	tolerationsHead   = configurationHead + "- name: PodTolerationRestriction\n  configuration:\n    apiVersion: podtolerationrestriction.admission.k8s.io/v1"
	webhookHead       = configurationHead + "- {name: "
	webhooksHead      = "AdmissionWebhook, configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, "
	imagesHead        = configurationHead + "- {name: ImagePolicyWebhook, configuration: "
)

// configurationErrors are recorded from kube-apiserver v1.36.3. It prefixes each one with "failed to
// apply admission: ".
var configurationErrors = []struct{ text, enable, want string }{
	{"plugins: []", "", "failed to read plugin config: Object 'Kind' is missing in 'plugins: []'"},
	{"apiVersion: apiserver.config.k8s.io/v1\nkind: Foo", "", `failed to read plugin config: no kind "Foo" is registered for version "apiserver.config.k8s.io/v1" in scheme `},
	{"apiVersion: apiserver.config.k8s.io/v2\nkind: AdmissionConfiguration", "", `failed to read plugin config: no kind "AdmissionConfiguration" is registered for version "apiserver.config.k8s.io/v2" in scheme `},
	{configurationHead + "- {name: A, foo: b}\nbar: 1", "", `failed to read plugin config: strict decoding error: unknown field "bar", unknown field "plugins[0].foo"`},
	{"{{", "", `failed to read plugin config: couldn't get version/kind; json parse error: invalid character '{' looking for beginning of object key string`},
	{"apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: {a: b}", "", "failed to read plugin config: json: cannot unmarshal object into Go struct field AdmissionConfiguration.plugins of type []v1.AdmissionPluginConfiguration"},
	{"", "", "failed to read plugin config: Object 'Kind' is missing in ''"},
	{configurationHead + "- name: EventRateLimit", "EventRateLimit", `couldn't init admission plugin "EventRateLimit": limits: Invalid value: null: must not be empty`},
	{configurationHead + "- {name: EventRateLimit, configuration: null}", "EventRateLimit", `couldn't init admission plugin "EventRateLimit": limits: Invalid value: null: must not be empty`},
	{"imagePolicy: {kubeConfigFile: /nope}", "ImagePolicyWebhook", `couldn't init admission plugin "ImagePolicyWebhook": stat /nope: no such file or directory`},
	{imagesHead + "{imagePolicy: {}}}", "ImagePolicyWebhook", `couldn't init admission plugin "ImagePolicyWebhook": invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable`},
	{imagesHead + "{imagePolicy: {allowTTL: 100000}}}", "ImagePolicyWebhook", `couldn't init admission plugin "ImagePolicyWebhook": valid value is between 1s and 30m0s, got 27h46m40s`},
	{configurationHead + "[]", "ImagePolicyWebhook", "failed to read plugin config: yaml: line 5: could not find expected ':'"},
	{securityHead + "v1\n    kind: PodSecurityConfiguration\n    defaults: {enforce: foo}", "", `failed to initialize admission plugin "PodSecurity": PodSecurity configuration error: enforce: must be one of privileged, baseline, restricted`},
	{securityHead + "v1\n    kind: PodSecurityConfiguration\n    exemptions: {usernames: [a, a, ''], namespaces: [b, b], runtimeClasses: [z, z]}", "",
		`failed to initialize admission plugin "PodSecurity": PodSecurity invalid: [exemptions.namespaces[1]: Duplicate value: "b", exemptions.runtimeClasses[1]: Duplicate value: "z", exemptions.usernames[1]: Duplicate value: "a", exemptions.usernames[2]: Invalid value: "": username must not be empty]`},
	{securityHead + "v1beta1\n    kind: PodSecurityConfiguration\n    defaults: {foo: foo}", "", `couldn't init admission plugin "PodSecurity": strict decoding error: unknown field "defaults.foo"`},
	{securityHead + "v2\n    kind: PodSecurityConfiguration", "", `couldn't init admission plugin "PodSecurity": no kind "PodSecurityConfiguration" is registered for version "pod-security.admission.config.k8s.io/v2" in scheme `},
	{configurationHead + "- {name: PodSecurity, configuration: {}}", "", `couldn't init admission plugin "PodSecurity": Object 'Kind' is missing in '{}'`},
	{quotaHead + "apiserver.config.k8s.io/v1\n    kind: ResourceQuotaConfiguration\n    limitedResources: [{apiGroup: a}]", "", `couldn't init admission plugin "ResourceQuota": limitedResources[0].resource: Required value`},
	{quotaHead + "apiserver.config.k8s.io/v1\n    kind: Configuration", "", `couldn't init admission plugin "ResourceQuota": no kind "Configuration" is registered for version "apiserver.config.k8s.io/v1" in scheme `},
	{quotaHead + "apiserver.config.k8s.io/v1\n    kind: ResourceQuotaConfiguration\n    limitedResources: [{resource: pods, x: y}]", "", `couldn't init admission plugin "ResourceQuota": strict decoding error: unknown field "limitedResources[0].x"`},
	{quotaHead + "resourcequota.admission.k8s.io/v1beta1\n    kind: Configuration\n    limitedResources: [{apiGroup: a}]", "", `couldn't init admission plugin "ResourceQuota": limitedResources[0].resource: Required value`},
	{tolerationsHead + "alpha1\n    kind: Configuration\n    default: [{key: a, operator: Foo}, {operator: Equal}, {operator: Exists, value: x}, {key: a, effect: Foo}, {key: a, tolerationSeconds: 3}]\n    whitelist: [{key: '', value: x}]", "PodTolerationRestriction",
		"couldn't init admission plugin \"PodTolerationRestriction\": invalid config: [podtolerationrestriction.default[0].operator: Unsupported value: \"Foo\": supported values: \"Equal\", \"Exists\" podtolerationrestriction.default[1].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \"match all values and all keys\" podtolerationrestriction.default[2].operator: Invalid value: \"x\": value must be empty when `operator` is 'Exists' podtolerationrestriction.default[3].effect: Unsupported value: \"Foo\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\" podtolerationrestriction.default[4].effect: Invalid value: \"\": effect must be 'NoExecute' when `tolerationSeconds` is set podtolerationrestriction.whitelist[0].operator: Invalid value: \"\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"]"},
	{webhookHead + "Mutating" + webhooksHead + "kubeConfigFile: nope}}", "", `couldn't init admission plugin "MutatingAdmissionWebhook": kubeConfigFile: Invalid value: "nope": must be an absolute file path`},
	{webhookHead + "Validating" + webhooksHead + "kubeConfigFil: /nope}}", "", `couldn't init admission plugin "ValidatingAdmissionWebhook": strict decoding error: unknown field "kubeConfigFil"`},
	{webhookHead + "Validating" + webhooksHead + "staticManifestsDir: /nope}}", "", `couldn't init admission plugin "ValidatingAdmissionWebhook": staticManifestsDir: Forbidden: staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate to be enabled`},
	{webhookHead + "ValidatingAdmissionPolicy, configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ValidatingAdmissionPolicyConfiguration, staticManifestsDir: /nope}}", "", `couldn't init admission plugin "ValidatingAdmissionPolicy": staticManifestsDir: Forbidden: staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate to be enabled`},
	{webhookHead + "MutatingAdmissionPolicy, configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: MutatingAdmissionPolicyConfiguration, a: b}}", "", `couldn't init admission plugin "MutatingAdmissionPolicy": strict decoding error: unknown field "a"`},
	{tolerationsHead + "\n    kind: Configuration", "PodTolerationRestriction", `couldn't init admission plugin "PodTolerationRestriction": no kind "Configuration" is registered for version "podtolerationrestriction.admission.k8s.io/v1" in scheme `},
}

func TestConfigurationErrors(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "c.yaml")
	read := func(text, enable string) error {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		enabled, err := Choose(strings.Fields(enable), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = ReadConfiguration(path, enabled, false)
		return err
	}
	for _, row := range configurationErrors {
		if err := read(row.text, row.enable); err == nil || !strings.HasPrefix(err.Error(), "failed to apply admission: "+row.want) {
			t.Errorf("%s:\ngot  %v\nwant failed to apply admission: %s", row.text, err, row.want)
		}
	}
	for _, row := range []struct{ text, enable string }{
		{configurationHead + "- {name: NodeRestriction, configuration: {a: b}}\n- {name: Unknown, path: nope}", "NodeRestriction"},
		{"apiVersion: apiserver.k8s.io/v1alpha1\nkind: AdmissionConfiguration", ""},
		{configurationHead + "- {name: EventRateLimit, path: nope.yaml}", ""},
		{"podNodeSelectorPluginConfig: {x: 'a=b'}", "PodNodeSelector"},
		{securityHead + "v1alpha1\n    kind: PodSecurityConfiguration\n    defaults: {warn: restricted, warn-version: v1.20}", ""},
	} {
		if err := read(row.text, row.enable); err != nil {
			t.Errorf("%s: %v", row.text, err)
		}
	}
	missing := "Couldn't open admission plugin configuration " + filepath.Join(dir, "nope.yaml") + ": "
	if err := read(configurationHead+"- {name: EventRateLimit, path: nope.yaml}", "EventRateLimit"); err == nil || !strings.HasPrefix(err.Error(), missing) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := ReadConfiguration(filepath.Join(dir, "nope"), Plugins{}, false); err == nil || !strings.HasPrefix(err.Error(), "failed to apply admission: failed to read plugin config: unable to read admission control configuration from ") {
		t.Errorf("a missing configuration: %v", err)
	}
}

func FuzzConfiguration(f *testing.F) {
	for _, row := range configurationErrors {
		f.Add(row.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseConfiguration([]byte(text), "/absent/c.yaml")
		if err != nil {
			return
		}
		for _, p := range configured {
			one, err := textOf(all, p.name)
			if err != nil || one == nil {
				continue
			}
			_ = p.read(&Configuration{}, one) // it must not panic
		}
	})
}

func FuzzNodeSelectors(f *testing.F) {
	f.Add("podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: \"a=b,c=d\", ns: \"\"}")
	f.Add("podNodeSelectorPluginConfig: {ns: \"a in (b)\"}")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseNodeSelectors([]byte(text))
		if err == nil && all == nil {
			t.Error("neither a configuration nor an error")
		}
	})
}
