"""What a page says about itself: status, dates, owners; and what it only mentions."""

from __future__ import annotations

import pytest

from ragdb.metadata import described
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
    "| Owner | SRE |\n| --- | --- |\n| Status | Draft |\n\n# Travel\n\ntext\n",
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
    "# 経費\n\n> この規程は 2025 年 4 月に廃止されました。\n",
    "# 経費\n\nステータス: 廃止\n",
    "# Old VPN\n\n> **Archived.** See new-vpn.md.\n",
    "# Old VPN\n\nThis page is archived.\n",
    "# Old VPN\n\n> This document has been superseded by new-vpn.md.\n",
    "# Old VPN\n\n> Deprecated: use the new client.\n",
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
