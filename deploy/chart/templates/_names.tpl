{{- /* REPOSITORY:TAG, or REPOSITORY@DIGEST. Call with (dict "image" VALUES "tag" DEFAULT). */ -}}
{{- define "muster.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .tag }}
{{- end -}}
{{- end -}}

{{- /* The cluster's own version without what its vendor adds: v1.34.2 of v1.34.2-eks-113cf36. */ -}}
{{- define "muster.kubernetes" -}}
{{ regexFind "^v[0-9]+[.][0-9]+[.][0-9]+" .Capabilities.KubeVersion.Version }}
{{- end -}}

{{- /* Not empty if no kube-scheduler stands beside Muster. */ -}}
{{- define "muster.alone" -}}
{{ if eq .Values.mode "standalone" }}yes{{ end }}
{{- end -}}

{{- /* Of kube-scheduler: what its tag says, or the cluster's. */ -}}
{{- define "muster.kubeScheduler" -}}
{{ regexFind "^v[0-9]+[.][0-9]+[.][0-9]+" .Values.kubeScheduler.image.tag | default (include "muster.kubernetes" .) }}
{{- end -}}

{{- /* Of every object. */ -}}
{{- define "muster.labels" -}}
app.kubernetes.io/part-of: muster
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}
