package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/logrule/elastalert"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

func rulesCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "rules", Short: "Bring rules over from elsewhere"}
	imp := &cobra.Command{Use: "import", Short: "Translate rules of another system and print them, to look at and apply"}
	var name, tenant string
	ea := &cobra.Command{
		Use: "elastalert FILE...", Short: "Translate rules of ElastAlert 2 into a LogRules object", Args: cobra.MinimumNArgs(1),
		Long: `Translate rule files of ElastAlert 2 and print one LogRules object with all of them.
Nothing is written to the control plane. What could not be taken over is said on
standard error, file by file: fields of lines that Muster does not know by name are
labels of lines (labels.FIELD), and how an alert is sent is up to an AlertRoute.

A file that can't be translated is named, with the reason, and is not in the output;
the exit code is 1 then.`,
		Example: `  muster rules import elastalert rules/*.yaml -T acme > logrules.yaml
  kubectl apply --dry-run=server -f logrules.yaml`,
		RunE: func(cmd *cobra.Command, files []string) error {
			if tenant == "" {
				tenant = os.Getenv("MUSTER_TENANT")
			}
			out := v1alpha1.LogRules{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "LogRules"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
			if tenant != "" {
				if err := fleet.ValidateTenant(tenant); err != nil {
					return fmt.Errorf("--tenant: %w", err)
				}
				out.Namespace = fleet.SystemNamespace(tenant)
			}
			failed, taken := 0, map[string]string{}
			for _, file := range files {
				b, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				r, err := elastalert.Translate(b)
				if err == nil && taken[r.Name] != "" {
					err = fmt.Errorf("name: becomes %s, as that of %s does: rename one", r.Name, taken[r.Name])
				}
				if err != nil {
					failed++
					fmt.Fprintf(cmd.ErrOrStderr(), "%s: not translated: %s\n", file, printable(err.Error()))
					continue
				}
				taken[r.Name] = file
				out.Spec.Rules = append(out.Spec.Rules, r.LogRule)
				for _, remark := range r.Remarks {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s: %s\n", file, r.Name, printable(remark))
				}
			}
			if len(out.Spec.Rules) > 0 {
				b, err := yaml.Marshal(map[string]any{"apiVersion": out.APIVersion, "kind": out.Kind, "metadata": metadataOf(out), "spec": out.Spec})
				if err != nil {
					return err
				}
				if _, err := cmd.OutOrStdout().Write(b); err != nil {
					return err
				}
			}
			if failed > 0 {
				return &Exit{Code: 1, Err: fmt.Errorf("%d of %d files were not translated", failed, len(files))}
			}
			return nil
		},
	}
	ea.Flags().StringVar(&name, "name", "elastalert", "name of the LogRules object")
	ea.Flags().StringVarP(&tenant, "tenant", "T", "", "tenant whose system namespace it is for (default: $MUSTER_TENANT, else none is written)")
	imp.AddCommand(ea)
	cmd.AddCommand(imp)
	return cmd
}

func metadataOf(o v1alpha1.LogRules) map[string]string {
	out := map[string]string{"name": o.Name}
	if o.Namespace != "" {
		out["namespace"] = o.Namespace
	}
	return out
}
