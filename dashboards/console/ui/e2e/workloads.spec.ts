import { control, expect, login, MOCK, test } from "./fixtures";

test.skip(!MOCK, "the workloads are the mock's");

const SHOP = "/workloads?tenant=acme&in=shop%2Fvk8s";

test("the list: bars, reasons in words, sorted, filtered, searched, from one virtual Kubernetes to another", async ({ page }) => {
  await login(page);
  await page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Workloads" }).click();
  const rows = page.locator("[data-workload]");
  await expect(rows).toHaveCount(8);
  const printer = page.locator('[data-workload="Deployment/label-printer"]');
  await expect(printer.getByText("image can't be pulled")).toBeVisible();
  await expect(printer.getByRole("img", { name: /failed/ })).toBeVisible();
  await expect(page.locator('[data-workload="Deployment/web"]').getByText(/^pending for want of CPU and memory on \d+$/)).toBeVisible();

  await page.getByRole("button", { name: "Name" }).click();
  await expect(page).toHaveURL(/sort=name/);
  await expect(rows.first()).toHaveAttribute("data-workload", "StatefulSet/basket-db");
  await page.getByLabel("State", { exact: true }).selectOption("Failed");
  await expect(rows).toHaveCount(2);
  await page.getByRole("searchbox", { name: "Search workloads" }).fill("memory");
  await expect(rows).toHaveCount(1);
  await expect(rows.first()).toHaveAttribute("data-workload", "Deployment/checkout");
  await page.getByRole("searchbox", { name: "Search workloads" }).fill("no such thing");
  await page.getByRole("button", { name: "Clear filters" }).click();
  await expect(rows).toHaveCount(8);

  await page.getByLabel("Tenant").selectOption("acme");
  await page.getByLabel("Virtual Kubernetes").selectOption("acme/lab/vk8s");
  await expect(page.getByText("Nothing is deployed yet")).toBeVisible();
  await expect(page.getByText("muster vk8s kubeconfig lab/vk8s > kubeconfig")).toBeVisible();
  await page.getByLabel("Tenant").selectOption("globex");
  await expect(page.getByText("there is no virtual site shared/all-eu")).toBeVisible();
});

test("an address names the virtual Kubernetes that is shown, from the beginning", async ({ page }) => {
  await login(page, "/workloads?sort=name");
  await expect(page).toHaveURL("/workloads?sort=name&tenant=acme&in=shop%2Fvk8s");
  await page.goto("/workloads/deploy");
  await expect(page).toHaveURL("/workloads/deploy?tenant=acme&in=shop%2Fvk8s");
});

test("without a virtual Kubernetes the page teaches how to make one", async ({ page }) => {
  await control(page, "novk8s");
  await login(page, "/workloads");
  await expect(page.getByText("No virtual Kubernetes yet")).toBeVisible();
  await expect(page.getByText("kind: VirtualKubernetes")).toBeVisible();
  await expect(page.getByText("muster vk8s kubeconfig shop/vk8s > kubeconfig")).toBeVisible();
});

test("one workload: its sites, their pods, the object; what went offline is told", async ({ page }) => {
  await login(page, SHOP);
  await page.getByRole("link", { name: "checkout" }).click();
  await expect(page.getByRole("heading", { name: "checkout", level: 1 })).toBeVisible();
  const sites = page.locator("[data-workload-site]");
  const first = sites.first();
  await expect(first).toContainText("Failed");
  await expect(first).toContainText("out of memory");
  await page.getByLabel("State of sites").selectOption("Progressing");
  await expect(first).toContainText("Progressing");
  await page.getByLabel("State of sites").selectOption("");

  const name = (await first.getAttribute("data-workload-site"))!;
  await first.getByRole("button", { name: `Pods on ${name}` }).click();
  await expect(page).toHaveURL(new RegExp(`site=${name}`));
  const pods = page.locator("[data-pod]");
  await expect(pods).toHaveCount(2);
  await expect(pods.nth(1)).toContainText("out of memory");
  await expect(pods.nth(1)).toContainText("17");
  await page.getByRole("button", { name: `Only on ${name}` }).click();
  await expect(pods).toHaveCount(50);

  const object = page.getByRole("region", { name: "Object" });
  await expect(object.getByLabel("YAML")).toContainText("kind: Deployment");
  await expect(object.getByText("ves.io/workload-flavor", { exact: true })).toBeVisible();

  await control(page, "break", { tenant: "acme", site: name });
  await expect(first.getByText("offline")).toBeVisible({ timeout: 15_000 });
});

test("a pod is deleted after a question, and only by whom may", async ({ page }) => {
  await login(page, SHOP);
  await page.getByRole("link", { name: "label-printer" }).click();
  const pod = page.locator("[data-pod]").first();
  const name = (await pod.getAttribute("data-pod"))!;
  await pod.getByRole("button", { name: `Delete ${name}` }).click();
  const dialog = page.getByRole("dialog", { name: `Delete ${name}?` });
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await expect(pod).toHaveAttribute("data-pod", name);
  await pod.getByRole("button", { name: `Delete ${name}` }).click();
  await control(page, "fail", { path: "/api/v1/vk8s/shop/vk8s/pods", method: "DELETE", status: 503, detail: "the API server can't do it now" });
  await dialog.getByRole("button", { name: "Delete" }).click();
  await expect(dialog.getByText("the API server can't do it now")).toBeVisible();
  await control(page, "unfail");
  await dialog.getByRole("button", { name: "Delete" }).click();
  await expect(page.getByText(`${name} is being deleted`)).toBeVisible();
  await expect(page.locator(`[data-pod="${name}"]`)).toHaveCount(0);

  await control(page, "rights", { deploy: false, deletePods: false, readLogs: false });
  await page.reload();
  await expect(page.locator("[data-pod]").first()).toBeVisible();
  await expect(page.getByRole("button", { name: /^Delete / })).toHaveCount(0);
  await expect(page.getByRole("link", { name: /^Log of / })).toHaveCount(0);
  await page.goto(SHOP);
  await expect(page.getByText("read only")).toBeVisible();
  await expect(page.getByRole("link", { name: "Deploy…" })).toHaveCount(0);
  const file = page.waitForEvent("download");
  await page.getByRole("link", { name: "Kubeconfig" }).click();
  expect((await file).suggestedFilename()).toBe("acme-shop-vk8s.kubeconfig");
  await page.goto("/workloads/deploy?tenant=acme&in=shop%2Fvk8s");
  await expect(page.getByText("You may look, not deploy")).toBeVisible();
});

test("a pod's log in one click: it follows, pauses, ends, and says when the site is away", async ({ page }) => {
  await login(page, SHOP);
  await page.getByRole("link", { name: "checkout" }).click();
  await page.getByRole("link", { name: /^Log of / }).first().click();
  await expect(page.locator("[data-follow=live]")).toBeVisible();
  await expect(page.locator(".log-row").first()).toContainText("slow query");
  await control(page, "say", { text: "hello from the pod" });
  await expect(page.locator(".log-row").first()).toContainText("hello from the pod");

  await page.getByRole("button", { name: "Pause" }).click();
  await control(page, "say", { text: "while paused" });
  await expect(page.getByText("Paused; 1 line waits")).toBeVisible();
  await expect(page.locator(".log-row").first()).toContainText("hello from the pod");
  await page.getByRole("button", { name: "Show 1 new line" }).click();
  await expect(page.locator(".log-row").first()).toContainText("while paused");

  await control(page, "endlogs");
  await expect(page.getByText("The container has ended")).toBeVisible();
  await page.getByLabel("Container").selectOption("proxy");
  await expect(page).toHaveURL(/container=proxy/);
  await expect(page.locator("[data-follow=live]")).toBeVisible();
  await page.getByRole("button", { name: "Previous run" }).click();
  await expect(page.getByText("The container has ended")).toBeVisible();

  const site = /^(\S+),/.exec((await page.getByText("straight from its site").textContent())!)![1]!;
  await control(page, "break", { tenant: "acme", site });
  await page.getByRole("button", { name: "Read again" }).click();
  await expect(page.getByText(`site ${site} is not connected`).first()).toBeVisible();
  await control(page, "heal", { tenant: "acme", site });
  await expect(page.getByText("The container has ended")).toBeVisible({ timeout: 20_000 });
});

test("deploy: what it reaches, what is refused and where, then its progress", async ({ page }) => {
  await login(page, SHOP);
  await page.getByRole("link", { name: "Deploy…" }).click();
  await expect(page.getByText(/It reaches \d+ sites/)).toBeVisible();
  const all = Number(await page.locator("[data-reach]").getAttribute("data-reach"));
  await page.getByLabel("Virtual site").selectOption("shared/canary");
  await expect(page.locator("[data-reach]")).not.toHaveAttribute("data-reach", String(all));
  const canary = Number(await page.locator("[data-reach]").getAttribute("data-reach"));
  expect(canary).toBeGreaterThan(0);

  const yaml = page.getByRole("textbox", { name: /Objects as YAML/ });
  await yaml.fill("apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: hello\n  annotations:\n    ves.io/workload-flavor: huge\n---\napiVersion: v1\nkind: Widget\nmetadata:\n  name: x\n");
  await page.getByRole("button", { name: "Check" }).click();
  await expect(page.getByText("2 objects would be refused")).toBeVisible();
  await expect(page.locator('[data-applied="Deployment/hello"]')).toContainText("want one of tiny, medium, large");
  await expect(page.locator('[data-applied="Widget/x"]')).toContainText("kind");

  await page.getByRole("textbox", { name: /Objects as YAML/ }).fill("");
  await page.getByRole("button", { name: "Start from an example" }).click();
  await expect(page.getByText("would be refused")).toHaveCount(0); // said of what stood there before
  await page.getByRole("button", { name: "Check" }).click();
  await expect(page.locator('[data-applied="Deployment/hello"]')).toContainText("is made on shared/canary");
  await page.getByRole("button", { name: "Apply 1 object" }).click();
  await expect(page.getByRole("heading", { name: "hello", level: 1 })).toBeVisible();
  await expect(page.getByRole("region", { name: "Sites" }).getByText(`${canary} sites`)).toBeVisible();
  await expect(page.locator("[data-workload-site]")).toHaveCount(25);
  await page.getByRole("button", { name: /^Show \d+ more$/ }).click();
  await expect(page.locator("[data-workload-site]")).toHaveCount(canary);
});

test("fields of somebody else are taken over only when asked to", async ({ page }) => {
  await login(page, "/workloads/deploy?tenant=acme&in=shop%2Fvk8s");
  await page.getByRole("textbox", { name: /Objects as YAML/ }).fill("apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: taken\nspec:\n  replicas: 2\n");
  await page.getByRole("button", { name: "Check" }).click();
  await expect(page.locator('[data-applied="Deployment/taken"]')).toContainText('conflict with "helm"');
  await page.getByLabel("Take over the fields that somebody else manages").check();
  await page.getByRole("button", { name: "Check" }).click();
  await expect(page.getByRole("button", { name: "Apply 1 object" })).toBeVisible();
});

test("a site's page lists what runs there", async ({ page }) => {
  await login(page, SHOP);
  await page.getByRole("link", { name: "label-printer" }).click();
  await page.locator("[data-workload-site] a").first().click();
  const here = page.getByRole("region", { name: "Workloads on this site" });
  await expect(here.locator("[data-site-workload]").first()).toHaveAttribute("data-site-workload", "Deployment/label-printer");
  await here.getByRole("link", { name: "label-printer" }).click();
  await expect(page).toHaveURL(/site=/);
  await expect(page.locator("[data-pod]")).toHaveCount(1);
});

test("failures are told with a way out, and a workload that is gone too", async ({ page }) => {
  await login(page);
  await control(page, "fail", { path: "/api/v1/vk8s/shop/vk8s/workloads", status: 503, title: "Service Unavailable", detail: "the status of sites is being read" });
  await page.goto(SHOP);
  await expect(page.getByText("the status of sites is being read")).toBeVisible();
  await control(page, "unfail");
  await page.getByRole("button", { name: "Try again" }).click();
  await expect(page.locator("[data-workload]").first()).toBeVisible();
  await page.goto("/workloads/shop/vk8s/Deployment.apps/gone?tenant=acme");
  await expect(page.getByText("There is no such workload")).toBeVisible();
});
