{{- define "syntony.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "syntony.labels" -}}
app.kubernetes.io/name: syntony
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* Of one component: (list $ "agent") */ -}}
{{- define "syntony.selector" -}}
app.kubernetes.io/name: syntony
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- /* Name of controller pod N, by which agents dial it: (list $ 0) */ -}}
{{- define "syntony.controllerHost" -}}
{{- $root := index . 0 -}}
{{ include "syntony.name" $root }}-controller-{{ index . 1 }}.{{ include "syntony.name" $root }}-controller.{{ $root.Release.Namespace }}.svc
{{- end }}

{{- define "syntony.controllers" -}}
{{- $found := .Values.agent.controllers -}}
{{- if not $found -}}
{{- range $number := until (int .Values.controller.replicas) -}}
{{- $found = append $found (printf "%s:8443" (include "syntony.controllerHost" (list $ $number))) -}}
{{- end -}}
{{- end -}}
{{- if not $found -}}
{{- fail "agent.controllers: without controllers of this chart, name those elsewhere, and agent.enrolAt" -}}
{{- end -}}
{{- toJson $found -}}
{{- end }}

{{- define "syntony.enrolAt" -}}
{{- if not (or .Values.agent.enrolAt .Values.controller.replicas) -}}
{{- fail "agent.enrolAt: without controllers of this chart, name the enrolment port of those elsewhere" -}}
{{- end -}}
{{- .Values.agent.enrolAt | default (printf "%s-enrol.%s.svc:8444" (include "syntony.name" .) .Release.Namespace) -}}
{{- end }}

{{- /* Of a Service: as many as the cluster has, if controllers listen at both. */ -}}
{{- define "syntony.families" -}}
ipFamilyPolicy: {{ ternary "PreferDualStack" "SingleStack" (eq .Values.listen "[::]") }}
{{- end }}

{{- define "syntony.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* What every container of ours gives up. */ -}}
{{- define "syntony.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* Of a container that prepares another: where quotas ask for limits, a pod without them is refused. */ -}}
{{- define "syntony.brief" -}}
requests: {cpu: 20m, memory: 64Mi}
limits: {memory: 256Mi}
{{- end }}
