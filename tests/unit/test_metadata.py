"""What a page says about itself: status, dates, owners; and what it only mentions."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragdb.errors import ConfigError
from ragdb.metadata import Rules, described
from ragdb.readers import read_file
from ragdb.types import Document

DRAFTS = [
    "# 出張規程\n\n> ⚠️ この文書はまだ承認されていないドラフトです。\n",
    "# 出張規程\n\n> まだ承認されていない\n",
    "# 出張規程\n\n> 注意: 本書は経営会議で承認されていません。\n",
    "# 出張規程\n\n> **ドラフト**: レビュー中のため引用しないでください。\n",
    "# 出張規程\n\n**ドラフト版**\n\n本文。\n",
    "# 出張規程\n\nドラフト v0.3 (2025 年 3 月)\n",
    "# 出張規程 (ドラフト)\n\n本文。\n",
    "# 【ドラフト】出張規程\n\n本文。\n",
    "# 出張規程\n\n> 【ドラフト】この手順は確認中です。\n",
    "# 出張規程\n\n> 【ドラフト】内容は変わることがあります。\n",
    "# 出張規程\n\n**【草案】**\n\n本文。\n",
    "# Travel\n\n> [DRAFT] Not approved yet.\n",
    "# 経費\n\nこの文書は草案であり、内容は変更される可能性があります。\n",
    "---\ntitle: Travel: new\nstatus: draft # not yet\n---\n# Travel\n\ntext\n",
    "# Travel\n\nStatus: draft (until 2026)\n",
    "# Travel\n\n> :construction: Draft v0.3\n",
    "# Travel\n\n> Draft\n\n- Published\n- Archived\n",
    "# Travel\n\n**[Draft v2]**\n\ntext\n",
    "# 就業規則改定 (案)\n\n本文。\n",
    "# 出張規程\n\n> ステータス: ドラフト (レビュー待ち)\n",
    "# 出張規程\n\n> 状態：下書き\n",
    "# 出張規程\n\nこのページは下書きの段階です。\n",
    "# 出張規程\n\n> 未承認のため、社外に出さないこと。\n",
    "# 出張規程\n\n> ⚠️ **Draft 注記**: この設計書は v4 の案で、まだ承認されていない。\n",
    "# Travel\n\n> Status: draft\n",
    "# Travel\n\n**Status:** Draft | **Owner:** SRE\n",
    "# Travel\n\n> Draft v0.3, do not cite\n",
    "# Travel\n\nDRAFT - for internal review only\n",
    "# Travel\n\n> [!WARNING]\n> This document is still a draft and has not been approved.\n",
    "# Travel\n\nThis policy has not yet been approved by the board.\n",
    "# [Draft] Travel\n\ntext\n",
    "# Travel policy - draft v2\n\ntext\n",
    "---\nstatus: draft\n---\n# Travel\n\ntext\n",
    "---\ndraft: true\n---\n# Travel\n\ntext\n",
    "Owner: SRE\nStatus: draft\n\n# Travel\n\ntext\n",
]
ARCHIVED = [
    "# 経費 2023\n\n> ⚠️ **Archive 注記**: この規程は 2023 年 4 月に作成され、`new.md` に置換されました。\n",
    "# 経費 2023\n\n> 本書類は履歴参照のために archive されています。\n",
    "# 経費 2023\n\nこのページはアーカイブされています。最新は new.md を参照。\n",
    "# 経費 2023\n\n> アーカイブ済み (2024 年 4 月)\n",
    "# 経費 2023\n\n> アーカイブ: この文書は 2023 年度のものです。\n",
    "# 経費 2023\n\n**アーカイブ文書**\n\n本文\n",
    "# 経費 (2023 年度版・旧版)\n\n本文\n",
    "# 【旧版】経費\n\n本文\n",
    "# 経費\n\n> 【旧版】最新は new.md を参照。\n",
    "# 経費\n\n> ⚠️ **【アーカイブ】** この文書は 2023 年度のものです。\n",
    "# Old VPN\n\n> [Archived] This page is kept for reference.\n",
    "# Old VPN\n\nSuperseded by: new-vpn.md\n",
    "# Old VPN\n\n> **DEPRECATED**: use new-vpn.md instead.\n",
    "# Old VPN\n\n> :warning: Obsolete: see new-vpn.md\n",
    "# 経費\n\n> この規程は、2024年3月31日をもって廃止されました。\n",
    "# 経費\n\n> この規程は 2025 年 4 月に廃止されました。\n",
    "# 経費\n\nステータス: 廃止\n",
    "# Old VPN\n\n> **Archived.** See new-vpn.md.\n",
    "# Old VPN\n\nThis page is archived.\n",
    "# Old VPN\n\n> This document has been superseded by new-vpn.md.\n",
    "# [Archived] Old VPN\n\ntext\n",
    "# Old VPN (deprecated)\n\ntext\n",
    "# Old VPN\n\nStatus: archived\n",
    "---\narchived: true\n---\n# Old VPN\n\ntext\n",
]
ACTIVE = [
    "# Mirage v3\n\n> v2 → v3 移行完了。v2 は `mirage-v2.md` に archive 済\n",
    "# Mirage v3\n\n旧版は archive されています。この文書が現行です。\n",
    "# ボードゲーム\n\n> 作成: 2025 年 4 月 28 日\n\n次回のお題は「ドラフト系ゲーム」です。\n",
    "# ドラフトゲームの紹介\n\nドラフト系ゲームは、カードを順に選びます。このページはドラフト系ゲームの紹介です。\n",
    "# ドラフト会議の記録\n\nドラフト会議で選ばれた選手の一覧です。\n",
    "# ドラフトの書き方\n\nこのガイドはドラフトの書き方を説明します。\n",
    "# 経費 FAQ\n\n承認されていない経費は支払われません。\n\n## 経費精算が承認されない\n\n部門長へ。\n",
    "# 経費 FAQ\n\n申請が承認されていない場合は、部門長に連絡してください。\n",
    "# メールのアーカイブ\n\nこのページでは、アーカイブされたメールの探し方を説明します。\n",
    "# メールのアーカイブ手順\n\nアーカイブされている文書の一覧です。\n",
    "# アーカイブ一覧\n\nこのページはアーカイブされた文書の一覧です。\n",
    "# アーカイブ一覧\n\nこのページはアーカイブされている文書の一覧です。\n",
    "# 手順\n\nこの文書はドラフトではありません。\n",
    "# 手順\n\n> 【下書き】ボタンを押すと保存されます。\n",
    "# 手順\n\n> 【アーカイブ】フォルダに移します。\n",
    "# 手順\n\n【ドラフト】この手順で作ります。\n",
    "# Mail\n\n> [Draft] button saves it.\n",
    *(
        f"# 経費\n\nSuperseded by: {word}\n\n## A\n\n本文\n"
        for word in ("なし", "該当なし", "未定", "―", "—", "(none)", "[none]", "null", "?", "not yet", "nobody", "N/A", "無し")
    ),
    "# P\n\nThis page has been superseded by nothing so far.\n",
    "# P\n\nThis page was archived by mistake and has been restored.\n",
    "# P\n\nThis policy was superseded and then reinstated.\n",
    "# P\n\nThis document is obsolete, but still in force until June.\n",
    "# P\n\nThis document was archived; it is active again since 2024.\n",
    "# P\n\nThis document is archived by the records team after seven years.\n",
    "# P\n\nThis page was outdated and has now been rewritten.\n",
    "# P\n\nStatus: draft (until 2023), now active\n",
    "# API\n\n> Deprecated: the fields a and b\n",
    "# States\n\n**Draft**\n\nStill being written.\n\n**Published**\n\nAnybody may read it.\n",
    "# 状態\n\n> 下書き\n\n書いている途中。\n\n> 公開\n\n誰でも読める。\n",
    "# Mail\n\n> [Archived](old.md) editions\n",
    "# 手順\n\n本文。\n\n## 履歴\n\n> この文書はドラフトです。\n",
    "# 手順\n\n```\nStatus: draft\n```\n\n本文\n",
    "# 手順\n\n<!-- Status: draft -->\n本文\n",
    "# Draft games night\n\nDraft games are popular. Draft picks are made in turns.\n",
    "# Drafts\n\nDrafts are kept in the outbox. This guide is about draft games.\n",
    "# Archive policy\n\nThis page describes how documents are archived. Archived pages are kept for ten years.\n",
    "# API v3\n\n> API v2 is deprecated. This page describes v3.\n",
    "# Minutes\n\nThis page has archived minutes.\n",
    "# Beer\n\nThis is a draft beer guide.\n",
    "# Picks\n\nStatus: draft picks are announced on Monday\n",
    "# Travel\n\nThis document is not a draft.\n",
    "# Travel\n\n> Status: approved (the draft is kept in git)\n",
    "---\nstatus: active\n---\n# Travel\n\n> Draft v0.3\n",
    "---\ndraft: false\n---\n# Travel\n\ntext\n",
    "# 移行\n\n> 旧システムは 2024 年に廃止されました。\n",
    "# PR の出し方\n\nこのガイドはドラフト段階の PR をレビューに出す手順です。\n",
    "# PR の出し方\n\nこの文書は Draft (WIP) PR の扱いを定めます。\n",
    "# 契約書\n\n本手順は、契約書の草案、最終案、締結版それぞれの保管場所を定める。\n",
    "# 端末\n\n本規程は未承認状態の端末を社内 LAN に接続することを禁じる。\n",
    "# 差し戻し\n\nこの手順は、承認されていないため差し戻された申請を再提出する方法である。\n",
    "# 経費\n\n> 未承認のまま出張した場合、経費は精算されません。\n",
    "# 経費\n\n未承認文書は社外に出さない。\n",
    "# 状態\n\n- Draft\n- Published\n- Archived\n\n1. 下書き\n2. 公開\n",
    "# Words\n\nDraft, review, publish: the three steps of a post.\n",
    "# Words\n\nDraft - a pull request that cannot be merged.\n",
    "# 下書き\n\n本文\n",
    "# Archived\n\nThe list of archived channels.\n",
    "# Template\n\nStatus: Draft / In Review / Approved\n",
    "# Project\n\nStatus: In progress\n",
    "# 障害報告\n\n状態: 終了\n",
    "# Done\n\n~~Status: draft~~\n\nStatus: approved\n",
    "# API\n\n| status | archived |\n| --- | --- |\n| owner | alice |\n",
    "# Example\n\n> ```\n> status: draft\n> ```\n",
    "# 規程\n\n本規程は 2025 年 4 月 1 日より施行し、2019 年版の規程は廃止されました。\n",
    "# 規程\n\n本規程は、住宅手当が 2024 年に廃止されましたので、経過措置を定める。\n",
    "# VPN\n\n本ページは、旧 VPN が廃止されましたことに伴う移行手順です。\n",
    "# ログ\n\n本手順は、90 日を過ぎたログが S3 にアーカイブされていることを前提とする。\n",
    "# Slack\n\nこのページは、アーカイブされている Slack チャンネルを戻す方法です。\n",
    "# FAQ\n\nQ: このページはアーカイブされていますか? A: いいえ。\n",
    "# 規程\n\n> 旧版: [2019 年版](old.md)\n",
    "# 規程\n\n旧版（2019 年版）は[こちら](old.md)を参照。\n",
    "# 規程\n\n> 廃止: 旧就業規則（2019）\n",
    "# Tickets\n\nArchived (closed) tickets are deleted after a year.\n",
    "# PEP\n\nSuperseded by: -\n",
    "# Parser\n\nReplaced by default: the old parser.\n",
    "# v3\n\nThis is deprecated behaviour in v3; use the new one.\n",
    "# Policy\n\nThis policy is no longer applicable to contractors.\n",
    "# Page\n\nThis page is outdated? Tell us!\n",
    "# Page\n\nThis page is no longer updated automatically; edit it by hand.\n",
    "# Policy\n\nThis document is not yet approved for use outside Japan.\n",
    "# 旧 VPN (廃止) からの移行手順\n\n本文\n",
    "# メールの下書き (draft) を保存する\n\n本文\n",
    "# 契約書(案)の作り方\n\n本文\n",
    "# ロゴ（3 案）\n\n本文\n",
    "# Deprecated: fields of the API\n\ntext\n",
    "# X\n\n<details><summary>info</summary>\n\nStatus: draft\n\n</details>\n",
    "# ゲーム\n\nドラフト: カードを順に選ぶ遊び方。\n",
]


def page(text: str) -> Document:
    return described(Document("page.md", text))


@pytest.mark.parametrize("text", DRAFTS)
def test_a_page_that_says_it_is_a_draft_is_one(text: str) -> None:
    assert page(text).status == "draft"


@pytest.mark.parametrize("text", ARCHIVED)
def test_a_page_that_says_it_is_archived_is(text: str) -> None:
    assert page(text).status == "archived"


@pytest.mark.parametrize("text", ACTIVE)
def test_a_page_that_only_mentions_drafts_or_archives_stays_active(text: str) -> None:
    assert page(text).status in (None, "active")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("最終更新: 2025 年 3 月 18 日", datetime(2025, 3, 18, tzinfo=UTC)),
        ("最終更新：２０２５年３月１８日", datetime(2025, 3, 18, tzinfo=UTC)),
        ("更新日: 令和7年3月18日", datetime(2025, 3, 18, tzinfo=UTC)),
        ("更新日: 令和元年 5 月 1 日", datetime(2019, 5, 1, tzinfo=UTC)),
        ("更新日時: 2025/03/18 09:30 JST", datetime(2025, 3, 18, 0, 30, tzinfo=UTC)),
        ("**Last updated:** 2025-03-18", datetime(2025, 3, 18, tzinfo=UTC)),
        ("Last updated: March 18, 2025", datetime(2025, 3, 18, tzinfo=UTC)),
        ("Last updated: Tuesday, 18th March 2025", datetime(2025, 3, 18, tzinfo=UTC)),
        ("Updated: 18 Mar 2025 by SRE", datetime(2025, 3, 18, tzinfo=UTC)),
        ("Last modified: 2025-03-18T09:30:00+09:00", datetime(2025, 3, 18, 0, 30, tzinfo=UTC)),
        ("Updated: 03/04/2025", None),  # March or April
        ("最終更新: 2025 年 3 月", None),  # no day
        ("最終更新: 2025 年 13 月 1 日", None),
        ("Last updated: soon", None),
        ("The table was updated: 2025-03-18", None),  # no label at the start of a line
    ],
)
def test_a_date_is_read_where_it_can_be_read_in_one_way(line: str, expected: datetime | None) -> None:
    assert page(f"# Page\n\n> {line}\n").updated_at == expected
    assert page(f"# Page\n\n{line}\n").updated_at == expected
    assert page(f"# Page\n\ntext\n\n## History\n\n{line}\n").updated_at is None


def test_owner_version_and_review_may_stand_on_one_line() -> None:
    one = page("# Page\n\n> Owner: SRE | Status: current | Version: v3.2 | Next review: 2026-01-31\n")
    two = page("# Page\n\n所管部署：総務部　改訂日：2025年4月1日　次回見直し：2026年1月31日\n")
    three = page("# Page\n\n- Owner: [SRE](team/sre.md)\n- Status: Draft\n- Version: 3.2\n")
    assert (one.owner, one.status, one.version, one.review_after) == ("SRE", "active", "v3.2", datetime(2026, 1, 31, tzinfo=UTC))
    assert (two.owner, two.updated_at, two.review_after) == (
        "総務部",
        datetime(2025, 4, 1, tzinfo=UTC),
        datetime(2026, 1, 31, tzinfo=UTC),
    )
    assert (three.owner, three.status, three.version) == ("SRE", "draft", "3.2")


@pytest.mark.parametrize(
    ("line", "owner"),
    [
        ("Owner: Jane Doe <jane@example.org>", "Jane Doe"),
        ("Owner: Jane Doe &lt;jane@example.org&gt; | Version: 2", "Jane Doe"),
        ("担当：山田 太郎＜taro@example.org＞", "山田 太郎"),
        ("Owner: <jane@example.org>", "jane@example.org"),
        ("Owner: <mailto:jane@example.org>", "jane@example.org"),
    ],
)
def test_an_owner_with_an_address_is_the_name_and_without_a_name_the_address(line: str, owner: str) -> None:
    assert page(f"# P\n\n{line}\n").owner == owner


def test_owners_of_front_matter_may_be_a_list() -> None:
    assert page("---\nowner: [SRE, 情報システム部]\n---\n# P\n").owner == "SRE, 情報システム部"
    assert page("---\nowner: [SRE, 3]\n---\n# P\n").owner == "SRE, 3"
    assert page("---\nowner: [SRE, {a: 1}]\n---\n# P\n").owner is None


@pytest.mark.parametrize("line", ["Owner: TBD", "Owner: ask in #help. Nobody knows.", "担当: 未定", "Version: see the changelog"])
def test_what_is_no_owner_or_version_is_not_taken_for_one(line: str) -> None:
    found = page(f"# Page\n\n{line}\n")
    assert (found.owner, found.version) == (None, None)


def test_what_was_found_is_kept_with_rule_line_and_words() -> None:
    found = page("<!-- licence -->\n# 経費\n\n> 最終更新: 2025 年 4 月 1 日 (経理グループ) / 改訂版\n").found
    assert found is not None
    assert found["updated_at"] == {
        "value": "2025-04-01T00:00:00+00:00",
        "rule": "updated",
        "line": 4,
        "text": "最終更新: 2025 年 4 月 1 日 (経理グループ) / 改訂版",
    }
    assert found["metadata.updated_by"]["value"] == "経理グループ"


def test_front_matter_comes_before_the_lines_of_the_page() -> None:
    found = page(
        "---\nstatus: active\nowner: SRE\nupdated: 2025-01-02\ntags: [a]\n---\n# P\n\n> Draft v1 | Owner: Sales\n> 最終更新: 2024-01-01\n"
    )
    assert (found.status, found.owner, found.updated_at) == ("active", "SRE", datetime(2025, 1, 2, tzinfo=UTC))
    assert found.metadata == {"owner": "SRE", "tags": ["a"]}
    assert found.found is not None
    assert found.found["status"]["rule"] == "front matter"


def test_rules_of_a_file_come_before_ours(tmp_path: Path) -> None:
    own = tmp_path / "rules.toml"
    own.write_text(
        """
[[rule]]
name = "confidential"
field = "metadata.audience"
labels = ["配布範囲", "Audience"]

[[rule]]
name = "frozen"
field = "status"
value = "archived"
patterns = ["^{self}は凍結されました"]

[[rule]]
name = "ticket"
field = "metadata.ticket"
patterns = ['\\b(OPS-\\d+)\\b']
""",
        encoding="utf-8",
    )
    text = "# P\n\n> 配布範囲: 全社員\n> この文書は凍結されました。\n> See OPS-42. ステータス: 現行\n"
    found = described(Document("p.md", text), Rules.load(own))
    assert (found.status, found.metadata) == ("archived", {"audience": "全社員", "ticket": "OPS-42"})
    assert described(Document("p.md", text)).metadata is None
    own.write_text("builtin = false\n" + own.read_text(encoding="utf-8"), encoding="utf-8")
    other = tmp_path / "others.toml"
    own.rename(other)
    assert described(Document("p.md", "# P\n\n> Status: draft\n"), Rules.load(other)).status is None


@pytest.mark.parametrize(
    ("toml", "told"),
    [
        ("[[rule]]\nname = 'x'\nfield = 'colour'\nlabels = ['a']", "field 'colour'"),
        ("[[rule]]\nname = 'x'\nfield = 'owner'\npatterns = ['(']", "no regular expression"),
        ("[[rule]]\nname = 'x'\nfield = 'owner'\npatterns = ['abc']", "has no group"),
        ("[[rule]]\nname = 'x'\nfield = 'owner'", "looks for nothing"),
        ("[[rule]]\nname = 'x'\nfield = 'status'\nvalue = 'old'\nlabels = ['a']", "status 'old'"),
        ("[[rule]]\nname = 'x'\nfield = 'owner'\nlabel = ['a']", "rule.0.label"),
        ("[[rule", "not TOML"),
    ],
)
def test_wrong_rules_are_refused_with_the_place(tmp_path: Path, toml: str, told: str) -> None:
    own = tmp_path / "rules.toml"
    own.write_text(toml)
    with pytest.raises(ConfigError, match="the metadata rules") as error:
        Rules.load(own)
    assert told in str(error.value)


def test_a_slow_pattern_is_an_error_that_names_it(tmp_path: Path) -> None:
    own = tmp_path / "rules.toml"
    own.write_text("[[rule]]\nname = 'x'\nfield = 'owner'\npatterns = ['(.*a){12}b']\n")
    with pytest.raises(ConfigError, match="took over"):
        described(Document("p.md", "a" * 390), Rules.load(own))


@given(st.text(max_size=400))
def test_any_text_can_be_described(text: str) -> None:
    for uri in ("p.md", "p.txt", "p.csv"):
        found = described(Document(uri, text))
        assert found.content == text
        assert found.status in (None, "active", "draft", "archived")


def test_a_table_of_records_says_nothing_about_itself() -> None:
    assert described(Document("orders.csv", "Status: draft,Owner: SRE\n1,2\n")).found == {}


def test_the_wiki_has_two_archived_pages_and_no_draft() -> None:
    folder = os.environ.get("RAGDB_TEST_DATA")
    if not folder or not (pages := sorted(Path(folder, "nagisa", "docs").glob("*.md"))):
        pytest.skip("RAGDB_TEST_DATA names no folder with nagisa")
    found = {path.stem: read_file(path) for path in pages}
    assert len(found) == 15
    assert {name for name, document in found.items() if document.status == "archived"} == {
        "mirage-architecture-v2-archive",
        "nagisa-expense-2023-archive",
    }
    assert not [name for name, document in found.items() if document.status == "draft"]
    assert found["mirage-architecture-v3"].updated_at == datetime(2025, 3, 18, tzinfo=UTC)


def test_a_slip_of_yaml_does_not_publish_a_draft() -> None:
    found = page("---\ntitle: Travel: new\nstatus: draft\nowner: @alice\n---\n\nSecret plan.\n")
    assert (found.status, found.owner) == ("draft", "@alice")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("Status: Draft", "draft"),
        ("status: [draft]", "draft"),
        ("status: superseded by ADR-0123", "archived"),
        ("ステータス: 下書き", "draft"),
    ],
)
def test_front_matter_is_read_as_people_write_it(head: str, status: str) -> None:
    assert page(f"---\n{head}\n---\n# P\n").status == status


def test_of_several_dates_of_change_the_last_one_counts() -> None:
    assert page("# P\n\n更新: 2023-04-01 初版\n更新: 2025-04-01 全面改訂\n").updated_at == datetime(2025, 4, 1, tzinfo=UTC)
    assert page("---\ndate: 2019-05-01\n---\n# P\n\nLast updated: 2025-03-18\n").updated_at == datetime(2025, 3, 18, tzinfo=UTC)
    assert page("# P\n\nLast updated: 2025-03-18 9:05 PM\n").updated_at == datetime(2025, 3, 18, tzinfo=UTC)


def test_without_rules_nothing_is_read_and_so_nothing_is_taken_back() -> None:
    assert described(Document("p.md", "# P\n\n> Draft v1\n"), Rules.none()).found is None


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2025-03-18 10:00 -07:00", datetime(2025, 3, 18, 17, tzinfo=UTC)),
        ("2025-03-18 10:00 +0900", datetime(2025, 3, 18, 1, tzinfo=UTC)),
        ("2025-03-18 10:00 JST | Owner: SRE", datetime(2025, 3, 18, 1, tzinfo=UTC)),
        ("2025-03-18 10:00", datetime(2025, 3, 18, 10, tzinfo=UTC)),
        ("2025-03-18 10:00 EST", datetime(2025, 3, 18, tzinfo=UTC)),
        ("2025-03-18 10:00 by Jane", datetime(2025, 3, 18, 10, tzinfo=UTC)),
    ],
)
def test_a_time_is_that_of_its_zone_or_is_left_out(written: str, read: datetime) -> None:
    found = page(f"# P\n\nUpdated: {written}\n").updated_at
    assert found is not None and found == read
