{{- define "tidemark.selector" -}}
app.kubernetes.io/name: tidemark
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tidemark.labels" -}}
{{ include "tidemark.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* The names of the Service, as clients in the cluster write them. */ -}}
{{- define "tidemark.config" -}}
{{- $name := .Release.Name }}
{{- $inNamespace := printf "%s.%s" $name .Release.Namespace }}
{{- $names := list $name $inNamespace (printf "%s.svc" $inNamespace) (printf "%s.svc.cluster.local" $inNamespace) }}
{{- merge (dict "tls-san" (concat $names .Values.tlsSANs)) .Values.config | toYaml }}
{{- end }}
