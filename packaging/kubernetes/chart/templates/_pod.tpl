{{- define "cortex.labels" -}}
app.kubernetes.io/name: cortex
{{- end }}
{{- define "cortex.image" -}}
{{ printf "%s:%s" .Values.image.repository .Values.image.tag | quote }}
{{- end }}
{{- define "cortex.user" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- define "cortex.placing" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ quote . }}
  {{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- define "cortex.locked" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
{{- define "cortex.environment" -}}
env:
  {{- if ne .Values.mode "single" }}
  # Without an address each pod would start a database of its own: then it must not start.
  - {name: CORTEX_DSN, valueFrom: {secretKeyRef: {name: {{ quote .Values.secret }}, key: CORTEX_DSN}}}
  {{- end }}
  - {name: CORTEX_DATA, value: /var/lib/cortex}
  {{- if .Values.network.proxies }}
  - {name: CORTEX_HTTP_PROXIES, value: {{ quote .Values.network.proxies }}}
  {{- end }}
envFrom:
  - secretRef:
      name: {{ quote .Values.secret }}
      {{- if ne .Values.mode "tick" }}
      optional: {{ eq .Values.mode "single" }}
      {{- end }}
{{- end }}
{{- define "cortex.data" -}}
{{- if or (eq .Values.mode "single") .Values.storage.shared -}}
persistentVolumeClaim: {claimName: cortex}
{{- else -}}
emptyDir: {}
{{- end }}
{{- end }}
{{- define "cortex.files" -}}
- {name: data, mountPath: /var/lib/cortex}
- {name: tmp, mountPath: /tmp}
{{- end }}
