// Starts `preflight lsp` and shows what it says. All else is in the server.

import { commands, ExtensionContext, RelativePattern, window, workspace } from "vscode";
import { LanguageClient } from "vscode-languageclient/node";

const LANGUAGES = ["yaml", "python", "shellscript", "toml"];
let client: LanguageClient | undefined;

async function start(): Promise<void> {
  const settings = workspace.getConfiguration("preflight");
  const folder = workspace.workspaceFolders?.[0];
  if (!settings.get<boolean>("enable", true)) return;
  client = new LanguageClient(
    "preflight",
    "preflight",
    { command: settings.get<string>("path", "preflight"), args: ["lsp"], options: { cwd: folder?.uri.fsPath } },
    {
      documentSelector: LANGUAGES.map((language) => ({ scheme: "file", language })),
      synchronize: {
        fileEvents: folder && workspace.createFileSystemWatcher(
          new RelativePattern(folder, "**/*.{yaml,yml,py,sh,sbatch,toml,json}"),
        ),
      },
    },
  );
  try {
    await client.start();
  } catch (error) {
    void window.showErrorMessage(`preflight lsp did not start: ${error}. Set preflight.path.`);
  }
}

async function stop(): Promise<void> {
  const running = client;
  client = undefined;
  await running?.dispose();
}

export async function activate(context: ExtensionContext): Promise<void> {
  context.subscriptions.push(
    commands.registerCommand("preflight.restart", async () => {
      await stop();
      await start();
    }),
    commands.registerCommand("preflight.output", () => client?.outputChannel.show()),
    workspace.onDidChangeConfiguration(async (change) => {
      if (change.affectsConfiguration("preflight")) {
        await stop();
        await start();
      }
    }),
  );
  await start();
}

export async function deactivate(): Promise<void> {
  await stop();
}
